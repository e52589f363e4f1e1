"""Rows of a table that is kept in shards: where in one of them they are.

Each shard has an additional row at its end. Indices of other shards refer to it, so that the number
of rows read and written does not depend on the indices (``cluster/tables.py``).
"""

from __future__ import annotations

from eagerflow.dtypes import INTEGERS, as_dtype
from eagerflow.errors import IndexRangeError
from eagerflow.op import Cost
from eagerflow.ops.family import batch_first, split_elementwise
from eagerflow.ops.indexing.indices import check_values, indexing_op, signed
from eagerflow.ops.reductions.sums import INDEX_RESULT
from eagerflow.spec import Array, Namespace, TensorSpec

_INT64 = as_dtype("int64")


@indexing_op(
    dtypes=INTEGERS,
    infer=lambda ids, **_: TensorSpec(ids.shape, _INT64),
    vjp=INDEX_RESULT,
    batch=lambda args, batched, size, **own: shard_rows(*batch_first(args, batched, size), **own),
    split=split_elementwise,
    cost=lambda ids, **_: Cost(4 * ids.size, 2 * ids.size * 8),
)
def shard_rows(
    xp: Namespace, ids: Array, /, *, begin: int, end: int, rows: int, low: int | None = None
) -> Array:
    """The indices of a table's rows in the shard of its rows from ``begin`` to before ``end``.

    ``ids`` is a tensor of integers, of rows of a table that has ``rows`` of them; negative ones
    count from the end. Rows outside of the shard become ``end - begin``: the additional row. Raises
    IndexRangeError for rows that the table does not have, and for those below ``low``, which is 0
    to refuse negative ones.

    >>> shard_rows(ef.tensor([0, 5, -1]), begin=4, end=7, rows=7)
    Tensor([3, 1, 2], int64, cpu:0)
    """
    try:
        check_values(xp, ids, 0, rows, low)
    except IndexRangeError as error:
        error.op = "take" if low is None else "gather"  # called by the program
        error.hint = "the table is in shards: shard_rows returns the positions of its rows"
        raise
    found = xp.astype(signed(ids), xp.int64)
    found = xp.where(found < 0, found + rows, found)
    inside = (found >= begin) & (found < end)
    return xp.where(inside, found - begin, end - begin)
