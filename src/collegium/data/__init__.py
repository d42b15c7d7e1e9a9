"""How data reach Collegium: named public sets and the user's own files, encoded by the consortium's public task.

Arrays are named by a digest (`array_spec`), records come from a `DataSource` through `load` as `Examples`,
and the public pool is kept in a `PoolStore`.
"""

from collegium.data.examples import Examples
from collegium.data.loading.loading import default_task, load
from collegium.data.loading.sources import NAMED_SETS, DataSource, data_root
from collegium.data.pools import PoolStore
from collegium.data.values import array_spec

__all__ = [
    "NAMED_SETS",
    "DataSource",
    "Examples",
    "PoolStore",
    "array_spec",
    "data_root",
    "default_task",
    "load",
]
