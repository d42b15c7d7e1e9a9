"""Limits on sizes and numbers. A message beyond one of them is refused before the rest of it is read."""

from collegium_accounting.limits import MAX_CLASSES as MAX_CLASSES
from collegium_accounting.limits import MAX_PARTIES as MAX_PARTIES
from collegium_accounting.limits import MAX_SUM_LENGTH as MAX_SUM_LENGTH
from collegium_accounting.limits import MAX_WEIGHT_LEVELS as MAX_WEIGHT_LEVELS

PROTOCOL_VERSION = 2
"""Raised where the version before would read a message, a question, a sum or a signed step otherwise, or not at all."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The largest message of the coordinator, such as a network, a projection or a roster."""
MAX_REPLY_BYTES = 4 * 1024 * 1024
"""The largest message of a party. The coordinator holds the messages of many at once in memory."""
MAX_NOTES_PER_REQUEST = 10_000
"""How often a party may say that it goes on computing an answer."""
MAX_COUNTS_PER_ANSWER = 1_000_000
"""Queries times counts per query. A count takes 4 bytes, so that an answer fits into MAX_REPLY_BYTES."""
MAX_CHUNK_BYTES = 1024 * 1024
MAX_POOL_BYTES = 8 * 1024**3
MAX_POOL_INPUTS = 10_000_000
MAX_DIMENSIONS = 4
MAX_QUERIES_PER_ROUND = 100_000
MAX_TEACHERS_PER_PARTY = 1_000
MAX_NEIGHBOUR_COUNT = 2**18 - 1
MAX_LANDMARKS = 4_096
MAX_SUM_ENTRY = 2**46
"""The largest number that a party contributes to an entry of a sum over all records, whatever the cap on records."""
MAX_RECORDS_PER_PARTY = 2**20
"""The most records that a party counts for in a sum over all records, where the consortium sets no smaller number."""
MAX_EVALUATION_BYTES = 48 * 1024 * 1024
MAX_RADIUS_SQUARED = 2**52
MAX_FEATURES = 2**16
MAX_PROJECTION_ENTRIES = 2**22
MAX_NETWORK_BYTES = 16 * 1024 * 1024
MAX_SETTLED_SUMS = 64
MAX_LEDGER_DIGESTS = 2**16
MAX_LEDGER_TERMS_BYTES = 2**20
MAX_JSON_BYTES = 256 * 1024
MAX_ROSTER_BYTES = 16 * 1024 * 1024
MAX_TEXT_CHARS = 1_000
FEW_PARTIES = 5
"""Exact sums of fewer parties need ``few_parties``: a count of 0, or of all teachers, tells the votes of each."""
REHEARSED_RECORDS = 300
"""What a party invents for a rehearsal unless somebody says how many."""
