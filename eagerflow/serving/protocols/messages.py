"""The messages of the Open Inference Protocol over gRPC, described as data.

Sources: the protocol's ``grpc_service.proto`` (package ``inference``) and Triton's additions to
it, ``model_config.proto``: names and numbers of fields. An enumeration is a number here. Protobuf
makes classes of the description when a server with gRPC starts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from eagerflow.files.protobuf import message_classes

__all__ = ["messages"]

PACKAGE = "inference"

_TENSOR = "string name; string datatype; *int64 shape"
_MODEL = "string name; string version"
_NAMED = "string model_name; string model_version; string id; %InferParameter parameters"
_CHANGE = "string repository_name; string model_name; %ModelRepositoryParameter parameters"
FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name; string version; *string extensions",
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "ModelMetadataResponse": "string name; *string versions; string platform; "
    "*ModelMetadataResponse.TensorMetadata inputs; *ModelMetadataResponse.TensorMetadata outputs",
    "InferParameter": "oneof parameter_choice: bool bool_param; int64 int64_param; "
    "string string_param; double double_param; uint64 uint64_param",
    "InferTensorContents": "*bool bool_contents; *int32 int_contents; *int64 int64_contents; "
    "*uint32 uint_contents; *uint64 uint64_contents; *float fp32_contents; "
    "*double fp64_contents; *bytes bytes_contents",
    "ModelInferRequest.InferInputTensor": f"{_TENSOR}; %InferParameter parameters; "
    "InferTensorContents contents",
    "ModelInferRequest.InferRequestedOutputTensor": "string name; %InferParameter parameters",
    "ModelInferRequest": f"{_NAMED}; *ModelInferRequest.InferInputTensor inputs; "
    "*ModelInferRequest.InferRequestedOutputTensor outputs; *bytes raw_input_contents",
    "ModelInferResponse.InferOutputTensor": f"{_TENSOR}; %InferParameter parameters; "
    "InferTensorContents contents",
    "ModelInferResponse": f"{_NAMED}; *ModelInferResponse.InferOutputTensor outputs; "
    "*bytes raw_output_contents",
    "ModelStreamInferResponse": "string error_message; ModelInferResponse infer_response",
    "ModelRepositoryParameter": "oneof parameter_choice: bool bool_param; int64 int64_param; "
    "string string_param; bytes bytes_param",
    "RepositoryIndexRequest": "string repository_name; bool ready",
    "RepositoryIndexResponse.ModelIndex": "string name; string version; string state; "
    "string reason",
    "RepositoryIndexResponse": "*RepositoryIndexResponse.ModelIndex models",
    "RepositoryModelLoadRequest": _CHANGE,
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": _CHANGE,
    "RepositoryModelUnloadResponse": "",
    "ModelConfigRequest": _MODEL,
    "ModelInput": "string name; int32 data_type; *int64 dims=4",
    "ModelOutput": "string name; int32 data_type; *int64 dims",
    "ModelDynamicBatching": "*int32 preferred_batch_size; uint64 max_queue_delay_microseconds",
    "ModelConfig": "string name; string platform; int32 max_batch_size=4; *ModelInput input; "
    "*ModelOutput output; ModelDynamicBatching dynamic_batching=11; string backend=17",
    "ModelConfigResponse": "ModelConfig config",
    "ModelStatisticsRequest": _MODEL,
    "StatisticDuration": "uint64 count; uint64 ns",
    "InferStatistics": "StatisticDuration success; StatisticDuration fail; "
    "StatisticDuration queue; StatisticDuration compute_infer=5",
    "ModelStatistics": "string name; string version; uint64 last_inference; "
    "uint64 inference_count; uint64 execution_count; InferStatistics inference_stats",
    "ModelStatisticsResponse": "*ModelStatistics model_stats",
}


@cache
def messages() -> dict[str, Any]:
    r"""The class of each message by its name; MissingExtraError without protobuf.

    >>> from eagerflow.serving.protocols.messages import messages
    >>> messages()["ServerLiveResponse"](live=True).SerializeToString()
    b'\x08\x01'
    """
    return message_classes(PACKAGE, FIELDS, "serving", "gRPC in ef.serving")
