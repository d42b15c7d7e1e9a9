"""How data reach Collegium: named public sets and the user's own files, encoded by the consortium's public task.

Arrays are named by a digest (`array_spec`), records come from a `DataSource` through `load` as `Examples`,
and the public pool is kept in a `PoolStore`.
"""

from collegium.protocol.inputs.arrays import array_spec, chunks
from collegium.protocol.inputs.examples import Examples
from collegium.protocol.inputs.loading import load
from collegium.protocol.inputs.named import default_task
from collegium.protocol.inputs.pools import PoolStore
from collegium.protocol.inputs.sources import NAMED_SETS, DataSource, data_root

__all__ = [
    "NAMED_SETS",
    "DataSource",
    "Examples",
    "PoolStore",
    "array_spec",
    "chunks",
    "data_root",
    "default_task",
    "load",
]
