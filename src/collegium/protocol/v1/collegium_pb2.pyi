from collegium.protocol.v1 import secure_sum_pb2 as _secure_sum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromParty(_message.Message):
    __slots__ = ("hello", "reply", "leaving", "computing")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    COMPUTING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    reply: Reply
    leaving: Leaving
    computing: Computing
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., computing: _Optional[_Union[Computing, _Mapping]] = ...) -> None: ...

class FromCoordinator(_message.Message):
    __slots__ = ("welcome", "request", "farewell", "roster")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FAREWELL_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    request: Request
    farewell: Farewell
    roster: RosterUpdate
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., farewell: _Optional[_Union[Farewell, _Mapping]] = ..., roster: _Optional[_Union[RosterUpdate, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "party", "software", "rehearsal")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    party: str
    software: str
    rehearsal: bool
    def __init__(self, protocol_version: _Optional[int] = ..., party: _Optional[str] = ..., software: _Optional[str] = ..., rehearsal: _Optional[bool] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: str
    def __init__(self, code: _Optional[str] = ...) -> None: ...

class Computing(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "consortium", "task_json", "rehearsal", "hears_computing", "software")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    TASK_JSON_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    HEARS_COMPUTING_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    consortium: str
    task_json: str
    rehearsal: bool
    hears_computing: bool
    software: str
    def __init__(self, protocol_version: _Optional[int] = ..., consortium: _Optional[str] = ..., task_json: _Optional[str] = ..., rehearsal: _Optional[bool] = ..., hears_computing: _Optional[bool] = ..., software: _Optional[str] = ...) -> None: ...

class RosterUpdate(_message.Message):
    __slots__ = ("roster_json",)
    ROSTER_JSON_FIELD_NUMBER: _ClassVar[int]
    roster_json: str
    def __init__(self, roster_json: _Optional[str] = ...) -> None: ...

class Farewell(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("request_id", "run_id", "describe", "hold_pool", "pool_chunk", "fit", "ask", "secure_sum", "show_ledger", "show_released")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    HOLD_POOL_FIELD_NUMBER: _ClassVar[int]
    POOL_CHUNK_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    SECURE_SUM_FIELD_NUMBER: _ClassVar[int]
    SHOW_LEDGER_FIELD_NUMBER: _ClassVar[int]
    SHOW_RELEASED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    describe: DescribeRequest
    hold_pool: HoldPoolRequest
    pool_chunk: PoolChunk
    fit: FitRequest
    ask: AskRequest
    secure_sum: _secure_sum_pb2.SecureSumRequest
    show_ledger: ShowLedgerRequest
    show_released: ShowReleasedRequest
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., describe: _Optional[_Union[DescribeRequest, _Mapping]] = ..., hold_pool: _Optional[_Union[HoldPoolRequest, _Mapping]] = ..., pool_chunk: _Optional[_Union[PoolChunk, _Mapping]] = ..., fit: _Optional[_Union[FitRequest, _Mapping]] = ..., ask: _Optional[_Union[AskRequest, _Mapping]] = ..., secure_sum: _Optional[_Union[_secure_sum_pb2.SecureSumRequest, _Mapping]] = ..., show_ledger: _Optional[_Union[ShowLedgerRequest, _Mapping]] = ..., show_released: _Optional[_Union[ShowReleasedRequest, _Mapping]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("request_id", "error", "description", "pool_state", "ledger_head", "fitted", "counts", "secure_sum", "prepared")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    POOL_STATE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    FITTED_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SECURE_SUM_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error: Error
    description: Description
    pool_state: PoolState
    ledger_head: LedgerHead
    fitted: Fitted
    counts: Counts
    secure_sum: _secure_sum_pb2.SecureSumReply
    prepared: Prepared
    def __init__(self, request_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., pool_state: _Optional[_Union[PoolState, _Mapping]] = ..., ledger_head: _Optional[_Union[LedgerHead, _Mapping]] = ..., fitted: _Optional[_Union[Fitted, _Mapping]] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ..., secure_sum: _Optional[_Union[_secure_sum_pb2.SecureSumReply, _Mapping]] = ..., prepared: _Optional[_Union[Prepared, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("party", "software", "teachers", "teacher_kind", "ledger_head", "persons")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    TEACHER_KIND_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    PERSONS_FIELD_NUMBER: _ClassVar[int]
    party: str
    software: str
    teachers: int
    teacher_kind: str
    ledger_head: str
    persons: bool
    def __init__(self, party: _Optional[str] = ..., software: _Optional[str] = ..., teachers: _Optional[int] = ..., teacher_kind: _Optional[str] = ..., ledger_head: _Optional[str] = ..., persons: _Optional[bool] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("sha256", "dtype", "shape")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sha256: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class HoldPoolRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: ArraySpec
    def __init__(self, pool: _Optional[_Union[ArraySpec, _Mapping]] = ...) -> None: ...

class PoolChunk(_message.Message):
    __slots__ = ("pool", "offset_bytes", "data")
    POOL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    pool: ArraySpec
    offset_bytes: int
    data: bytes
    def __init__(self, pool: _Optional[_Union[ArraySpec, _Mapping]] = ..., offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PoolState(_message.Message):
    __slots__ = ("sha256", "received_bytes", "complete")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    received_bytes: int
    complete: bool
    def __init__(self, sha256: _Optional[str] = ..., received_bytes: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...

class ShowLedgerRequest(_message.Message):
    __slots__ = ("after", "digests", "settled", "terms")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    after: str
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    settled: _containers.RepeatedScalarFieldContainer[bytes]
    terms: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, after: _Optional[str] = ..., digests: _Optional[_Iterable[bytes]] = ..., settled: _Optional[_Iterable[bytes]] = ..., terms: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LedgerHead(_message.Message):
    __slots__ = ("head", "signature", "agreed")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    head: str
    signature: bytes
    agreed: str
    def __init__(self, head: _Optional[str] = ..., signature: _Optional[bytes] = ..., agreed: _Optional[str] = ...) -> None: ...

class FitRequest(_message.Message):
    __slots__ = ("teacher_json",)
    TEACHER_JSON_FIELD_NUMBER: _ClassVar[int]
    teacher_json: str
    def __init__(self, teacher_json: _Optional[str] = ...) -> None: ...

class Fitted(_message.Message):
    __slots__ = ("teachers",)
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    teachers: int
    def __init__(self, teachers: _Optional[int] = ...) -> None: ...

class AskRequest(_message.Message):
    __slots__ = ("round_id", "kind", "question")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    kind: str
    question: bytes
    def __init__(self, round_id: _Optional[str] = ..., kind: _Optional[str] = ..., question: _Optional[bytes] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("rows", "entries", "entry_bytes", "counts")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BYTES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    entries: int
    entry_bytes: int
    counts: bytes
    def __init__(self, rows: _Optional[int] = ..., entries: _Optional[int] = ..., entry_bytes: _Optional[int] = ..., counts: _Optional[bytes] = ...) -> None: ...

class Prepared(_message.Message):
    __slots__ = ("round_id",)
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    def __init__(self, round_id: _Optional[str] = ...) -> None: ...

class ShowReleasedRequest(_message.Message):
    __slots__ = ("round_id", "kind", "counts", "noise_variance")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    kind: str
    counts: _containers.RepeatedScalarFieldContainer[float]
    noise_variance: float
    def __init__(self, round_id: _Optional[str] = ..., kind: _Optional[str] = ..., counts: _Optional[_Iterable[float]] = ..., noise_variance: _Optional[float] = ...) -> None: ...
