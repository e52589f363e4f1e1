"""For all tests: the same examples in every run, and no network."""

import atexit
import collections
import faulthandler
import gc
import os
import pathlib
import shutil
import socket
import sys
import tempfile
import zlib

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", deadline=None, max_examples=2_000)
settings.load_profile("soak" if os.environ.get("EAGERFLOW_SOAK") == "1" else "ci")

# Kernels compiled here are not the user's: the folder is the run's own, with its workers.
if "EAGERFLOW_CACHE" not in os.environ:
    os.environ["EAGERFLOW_CACHE"] = tempfile.mkdtemp(prefix="eagerflow-tests-")
    atexit.register(shutil.rmtree, os.environ["EAGERFLOW_CACHE"], ignore_errors=True)

# Tests start hundreds of programs: each of them would compile all that it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

TESTS = pathlib.Path(__file__).parent

# What the quick part leaves out, for it runs in many environments: it keeps each n-th case of
# these tests, and none of those with 0. They took two thirds of the time.
SLOW = {
    "test_a_byte_beyond_ends_the_process": 0,
    "test_a_checkpoint_gives_back_what_all_tasks_have_lost": 0,
    "test_a_fork_while_threads_compile": 0,
    "test_a_gpt_whose_embedding_two_stages_read": 0,
    "test_a_hundred_thousand_nodes_are_counted": 0,
    "test_a_hundred_thousand_nodes_are_drawn_in_time": 0,
    "test_a_hundred_thousand_nodes_print_in_linear_time": 0,
    "test_a_limit_of_the_system": 0,
    "test_a_lock_that_a_fork_leaves_behind_is_noticed": 0,
    "test_a_network_that_hangs_for_a_moment_costs_that_moment": 0,
    "test_a_partition_between_tasks_is_survived": 0,
    "test_a_program_ends_while_a_thread_compiles": 0,
    "test_a_strategy_shows_its_graphs": 0,
    "test_a_task_that_is_cut_off_is_replaced": 0,
    "test_absurd_sizes": 0,
    "test_all_texts_compile_for_gpus": 0,
    "test_all_variants_are_written_for_neon": 0,
    "test_asynchronous_training_reaches_the_loss": 0,
    "test_bad_input_raises_our_errors_only": 6,
    "test_bits_depend_neither_on_threads_nor_on_the_run": 4,
    "test_bits_of_products_do_not_depend_on_the_threads_of_blas": 0,
    "test_code_for_processors_with_shorter_vectors": 0,
    "test_compiled_and_dropped_kernels_leave_no_memory": 0,
    "test_damaged_kernels_are_compiled_again": 0,
    "test_demo_says_when_it_misses_its_promise": 0,
    "test_demo_trains_to_98_percent_and_draws": 0,
    "test_eight_processes_compile_the_same_at_once": 0,
    "test_eight_threads_call_thirty_regions_at_once": 0,
    "test_every_refusal_is_met": 0,
    "test_every_rule_computes_its_op_as_machine_code": 4,
    "test_every_rule_computes_its_op_on_tiles": 4,
    "test_every_rule_keeps_special_numbers": 4,
    "test_functions_fit_one_screen": 0,
    "test_fuzzer_finds_a_dead_process": 0,
    "test_gradients": 4,
    "test_gradients_of_calls": 4,
    "test_gradients_of_samples": 4,
    "test_imports_go_down": 0,
    "test_kernels_of_training_steps_compile_for_gpus": 0,
    "test_killed_tasks_leave_a_whole_checkpoint": 0,
    "test_kills_cost_no_bit": 0,
    "test_kills_lose_nothing_and_double_nothing": 0,
    "test_large_regions_are_within_bounds_and_of_the_same_bits": 6,
    "test_large_results_are_refused": 4,
    "test_late_and_double_messages_change_nothing": 0,
    "test_limits_change_while_kernels_run": 0,
    "test_loading_runs_nothing_and_opens_one_file": 0,
    "test_many_changes_are_found_in_time": 0,
    "test_memory_is_bounded_by_the_file": 0,
    "test_mutants_give_typed_errors": 0,
    "test_mutated_attributes_are_refused_or_run_with_errors_of_ours": 0,
    "test_narrower_machines": 0,
    "test_no_byte_beyond_an_array_is_read": 6,
    "test_no_import_cycle": 0,
    "test_no_import_inside_a_function": 0,
    "test_op_needs_only_the_standard": 4,
    "test_placing_takes_time_in_proportion_to_the_nodes": 0,
    "test_programs": 10,
    "test_programs_elsewhere": 0,
    "test_random_functions_are_never_stale": 4,
    "test_random_programs_as_machine_code": 6,
    "test_random_programs_on_tiles": 4,
    "test_regions_are_within_bounds_and_of_the_same_bits": 6,
    "test_regions_give_what_numpy_gives": 3,
    "test_same_program_same_bytes_in_every_process": 0,
    "test_samples": 4,
    "test_saves_survive_kills": 0,
    "test_steps_are_those_of_the_whole_batch": 4,
    "test_tasks_end_when_their_client_is_killed": 0,
    "test_tasks_that_are_stopped_or_cut_off_cost_no_bit": 0,
    "test_the_compiler_can_be_switched_off": 0,
    "test_the_limit_holds_after_every_store": 0,
    "test_threads_that_clear_do_not_disturb_others": 0,
    "test_time_is_linear_in_the_number_of_nodes": 0,
    "test_tutorial_runs": 0,
    "test_values": 4,
    "test_views_keep_the_memory": 4,
    "test_what_loads_runs_nothing_but_its_plan": 0,
    "test_wrong_gradient_rules_are_found": 6,
}

# What the suite keeps each n-th case of; the others are in its extended part. Their cases are
# alike, an op, a processor, a random program each, and they took most of the time. The first case
# that is kept depends on the name, so that tests with the same cases do not all keep the same.
EXTENDED = {
    "backends/test_cublaslt.py::test_steps_with_epilogues": 2,
    "backends/test_cupy_plans.py::test_regions_give_what_eager_gives": 3,
    "backends/test_strict.py::test_composed_function_stays_on_the_operands_device": 3,
    "backends/test_strict.py::test_op_needs_only_the_standard": 3,
    "capture/guards/test_ledger.py::test_random_functions_are_never_stale": 3,
    "capture/passes/test_equality.py::test_gradients_of_samples": 3,
    "capture/passes/test_equality.py::test_samples": 3,
    "capture/test_kept_graphs.py::test_calls_that_are_traced_anew_leave_nothing": 2,
    "capture/test_op_samples.py::test_gradients": 3,
    "capture/test_op_samples.py::test_units": 3,
    "capture/test_op_samples.py::test_values": 3,
    "capture/test_programs.py::test_programs": 4,
    "cluster/test_data_parallel.py::test_steps_are_those_of_the_whole_batch": 2,
    "cluster/test_same_training.py::test_tasks_train_to_the_bits_of_devices": 2,
    "cluster/test_tables.py::test_steps_are_those_of_the_whole_batch": 2,
    "codegen/test_llvm.py::test_bits_depend_neither_on_threads_nor_on_the_run": 3,
    "codegen/test_llvm.py::test_narrower_machines": 2,
    "codegen/test_llvm.py::test_regions_give_what_numpy_gives": 3,
    "codegen/test_random_regions.py::test_regions_are_within_bounds_and_of_the_same_bits": 3,
    "fusion/test_groups.py::test_every_rule_computes_its_op_as_machine_code": 3,
    "fusion/test_groups.py::test_every_rule_computes_its_op_on_tiles": 3,
    "fusion/test_groups.py::test_random_programs_as_machine_code": 2,
    "fusion/test_groups.py::test_random_programs_on_tiles": 3,
    "fusion/test_lowering.py::test_every_rule_keeps_special_numbers": 3,
    "nn/test_cases.py::test_captured_and_symbolic": 2,
    "nn/test_cases.py::test_saved_and_loaded": 2,
    "nn/test_cases.py::test_training": 3,
    "nn/test_configuration.py::test_every_layer_in_a_model": 2,
    "nn/test_loader.py::test_state_goes_on_with_the_batches_that_would_have_come": 3,
    "nn/test_losses.py::test_captured": 2,
    "nn/test_metrics.py::test_captured": 2,
    "nn/test_networks.py::test_a_saved_one_predicts_and_trains_on_with_the_same_bits": 2,
    "nn/test_networks.py::test_eager_captured_loaded_and_partitioned_are_the_same": 3,
    "nn/test_networks.py::test_it_learns": 3,
    "nn/test_networks.py::test_one_graph_takes_batches_of_any_size": 2,
    "nn/test_programs.py::test_captured_training_is_eager_training": 4,
    "nn/test_saving.py::test_every_layer_in_a_file": 2,
    "onnx/reading/test_mutants.py::test_mutants": 2,
    "onnx/reading/test_node_tests.py::test_node_tests": 2,
    "onnx/writing/test_free_sizes.py::test_any_number_of_rows": 3,
    "onnx/writing/test_networks.py::test_networks": 2,
    "onnx/writing/test_ops.py::test_every_dtype": 4,
    "onnx/writing/test_ops.py::test_every_opset": 5,
    "onnx/writing/test_ops.py::test_reference_evaluator": 2,
    "onnx/writing/test_ops.py::test_units_in_the_last_place": 3,
    "ops/linear_algebra/test_linear_algebra.py::test_bits_of_products_do_not_depend_on_the_threads"
    "_of_blas": 2,
    "plan/test_lowering.py::test_loops_and_branches_as_deep_as_files_hold": 2,
    "plan/test_recurrent_steps.py::test_other_processors_and_no_compiler": 3,
    "plan/test_recurrent_steps.py::test_what_the_ops_take": 2,
    "primitives/test_attention.py::test_results_and_gradients": 3,
    "primitives/test_integer_products.py::test_other_processors": 2,
    "standalone/test_every_op.py::test_samples_of": 3,
    "standalone/test_networks.py::test_networks_of_the_literature": 2,
}


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Without walks of the collector, which find nothing: all that is made here stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what SLOW and EXTENDED name, before -m is looked at."""
    seen = collections.Counter({(key, "soak"): zlib.crc32(key.encode()) for key in EXTENDED})
    folder = f"{TESTS}{os.sep}"
    for item in items:
        name = getattr(item, "originalname", None) or item.name
        place = f"{str(item.path).removeprefix(folder).replace(os.sep, '/')}::{name}"
        for step, mark in ((EXTENDED.get(place, 1), "soak"), (SLOW.get(name, 1), "slow")):
            left_out = not step or seen[place, mark] % step
            seen[place, mark] += 1
            if left_out:
                item.add_marker(mark)
                break  # the quick part keeps some of what the suite does


@pytest.fixture(autouse=True)
def as_long_as_it_takes(request):
    """No limit of time for what is run on demand."""
    if request.node.get_closest_marker("soak"):
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True, scope="module")
def the_collector():
    """Keep what came before a module out of each walk of the collector, which took a second.

    What a module leaves otherwise than it was would fail in another one.
    """
    gc.collect()
    gc.freeze()
    before = gc.get_threshold(), gc.isenabled()
    yield
    assert (gc.get_threshold(), gc.isenabled()) == before


@pytest.fixture(autouse=True, scope="module")
def the_programs_of_jax():
    """Let go of what JAX has compiled: of thousands of tests it fills a process's memory map."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


LOCAL = ("127.0.0.1", "::1", "localhost", "")


@pytest.fixture(autouse=True, scope="session")
def no_network():
    """Connections to other machines fail; servers under test listen on this one."""

    def guarded(original):
        def connect(self, address):
            if isinstance(address, tuple) and address[0] not in LOCAL:
                raise RuntimeError(f"a test connects to {address[0]!r}; tests use no network")
            return original(self, address)

        return connect

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        yield
