from collegium.protocol.v1 import secure_sum_pb2 as _secure_sum_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromParty(_message.Message):
    __slots__ = ("hello", "reply", "leaving")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    reply: Reply
    leaving: Leaving
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("protocol_version", "party", "software")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    party: str
    software: str
    def __init__(self, protocol_version: _Optional[int] = ..., party: _Optional[str] = ..., software: _Optional[str] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("code",)
    CODE_FIELD_NUMBER: _ClassVar[int]
    code: str
    def __init__(self, code: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_version", "consortium", "task_json")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    TASK_JSON_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    consortium: str
    task_json: str
    def __init__(self, protocol_version: _Optional[int] = ..., consortium: _Optional[str] = ..., task_json: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("request_id", "run_id", "describe", "hold_pool", "pool_chunk", "fit", "cast_votes", "secure_sum", "show_ledger", "cast_neighbours", "count_nearest", "sum_classes", "evaluate", "show_evaluation", "count_coverage")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    HOLD_POOL_FIELD_NUMBER: _ClassVar[int]
    POOL_CHUNK_FIELD_NUMBER: _ClassVar[int]
    FIT_FIELD_NUMBER: _ClassVar[int]
    CAST_VOTES_FIELD_NUMBER: _ClassVar[int]
    SECURE_SUM_FIELD_NUMBER: _ClassVar[int]
    SHOW_LEDGER_FIELD_NUMBER: _ClassVar[int]
    CAST_NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    COUNT_NEAREST_FIELD_NUMBER: _ClassVar[int]
    SUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_FIELD_NUMBER: _ClassVar[int]
    SHOW_EVALUATION_FIELD_NUMBER: _ClassVar[int]
    COUNT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    describe: DescribeRequest
    hold_pool: HoldPoolRequest
    pool_chunk: PoolChunk
    fit: FitRequest
    cast_votes: CastVotesRequest
    secure_sum: _secure_sum_pb2.SecureSumRequest
    show_ledger: ShowLedgerRequest
    cast_neighbours: CastNeighboursRequest
    count_nearest: CountNearestRequest
    sum_classes: SumClassesRequest
    evaluate: EvaluateRequest
    show_evaluation: ShowEvaluationRequest
    count_coverage: CountCoverageRequest
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., describe: _Optional[_Union[DescribeRequest, _Mapping]] = ..., hold_pool: _Optional[_Union[HoldPoolRequest, _Mapping]] = ..., pool_chunk: _Optional[_Union[PoolChunk, _Mapping]] = ..., fit: _Optional[_Union[FitRequest, _Mapping]] = ..., cast_votes: _Optional[_Union[CastVotesRequest, _Mapping]] = ..., secure_sum: _Optional[_Union[_secure_sum_pb2.SecureSumRequest, _Mapping]] = ..., show_ledger: _Optional[_Union[ShowLedgerRequest, _Mapping]] = ..., cast_neighbours: _Optional[_Union[CastNeighboursRequest, _Mapping]] = ..., count_nearest: _Optional[_Union[CountNearestRequest, _Mapping]] = ..., sum_classes: _Optional[_Union[SumClassesRequest, _Mapping]] = ..., evaluate: _Optional[_Union[EvaluateRequest, _Mapping]] = ..., show_evaluation: _Optional[_Union[ShowEvaluationRequest, _Mapping]] = ..., count_coverage: _Optional[_Union[CountCoverageRequest, _Mapping]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("request_id", "error", "description", "pool_state", "ledger_head", "fitted", "votes", "secure_sum", "prepared", "neighbours", "sums")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    POOL_STATE_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    FITTED_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    SECURE_SUM_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error: Error
    description: Description
    pool_state: PoolState
    ledger_head: LedgerHead
    fitted: Fitted
    votes: Votes
    secure_sum: _secure_sum_pb2.SecureSumReply
    prepared: Prepared
    neighbours: Neighbours
    sums: Sums
    def __init__(self, request_id: _Optional[str] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., description: _Optional[_Union[Description, _Mapping]] = ..., pool_state: _Optional[_Union[PoolState, _Mapping]] = ..., ledger_head: _Optional[_Union[LedgerHead, _Mapping]] = ..., fitted: _Optional[_Union[Fitted, _Mapping]] = ..., votes: _Optional[_Union[Votes, _Mapping]] = ..., secure_sum: _Optional[_Union[_secure_sum_pb2.SecureSumReply, _Mapping]] = ..., prepared: _Optional[_Union[Prepared, _Mapping]] = ..., neighbours: _Optional[_Union[Neighbours, _Mapping]] = ..., sums: _Optional[_Union[Sums, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("party", "software", "teachers", "teacher_kind", "ledger_head")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    TEACHER_KIND_FIELD_NUMBER: _ClassVar[int]
    LEDGER_HEAD_FIELD_NUMBER: _ClassVar[int]
    party: str
    software: str
    teachers: int
    teacher_kind: str
    ledger_head: str
    def __init__(self, party: _Optional[str] = ..., software: _Optional[str] = ..., teachers: _Optional[int] = ..., teacher_kind: _Optional[str] = ..., ledger_head: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("after", "digests")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    after: str
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, after: _Optional[str] = ..., digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LedgerHead(_message.Message):
    __slots__ = ("head", "signature")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    head: str
    signature: bytes
    def __init__(self, head: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

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

class Terms(_message.Message):
    __slots__ = ("mechanism", "parameters", "adjacency", "sum_mode", "stage")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ADJACENCY_FIELD_NUMBER: _ClassVar[int]
    SUM_MODE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    parameters: _containers.ScalarMap[str, float]
    adjacency: str
    sum_mode: str
    stage: str
    def __init__(self, mechanism: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., adjacency: _Optional[str] = ..., sum_mode: _Optional[str] = ..., stage: _Optional[str] = ...) -> None: ...

class CastVotesRequest(_message.Message):
    __slots__ = ("terms", "teacher_json", "inputs", "round_id", "ledger_id")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    TEACHER_JSON_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    teacher_json: str
    inputs: PoolRange
    round_id: str
    ledger_id: str
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., teacher_json: _Optional[str] = ..., inputs: _Optional[_Union[PoolRange, _Mapping]] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ...) -> None: ...

class PoolRange(_message.Message):
    __slots__ = ("pool_sha256", "indices")
    POOL_SHA256_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    pool_sha256: str
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pool_sha256: _Optional[str] = ..., indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Votes(_message.Message):
    __slots__ = ("queries", "classes", "counts")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    queries: int
    classes: int
    counts: bytes
    def __init__(self, queries: _Optional[int] = ..., classes: _Optional[int] = ..., counts: _Optional[bytes] = ...) -> None: ...

class Prepared(_message.Message):
    __slots__ = ("round_id",)
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    def __init__(self, round_id: _Optional[str] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ("name", "projection", "projection_data", "scaling", "scaling_data", "network")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_DATA_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    SCALING_DATA_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    name: str
    projection: ArraySpec
    projection_data: bytes
    scaling: ArraySpec
    scaling_data: bytes
    network: bytes
    def __init__(self, name: _Optional[str] = ..., projection: _Optional[_Union[ArraySpec, _Mapping]] = ..., projection_data: _Optional[bytes] = ..., scaling: _Optional[_Union[ArraySpec, _Mapping]] = ..., scaling_data: _Optional[bytes] = ..., network: _Optional[bytes] = ...) -> None: ...

class CastNeighboursRequest(_message.Message):
    __slots__ = ("terms", "features", "inputs", "radii_squared", "kernel", "round_id", "ledger_id", "per_party")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    RADII_SQUARED_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PER_PARTY_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    features: Features
    inputs: PoolRange
    radii_squared: _containers.RepeatedScalarFieldContainer[int]
    kernel: str
    round_id: str
    ledger_id: str
    per_party: bool
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., features: _Optional[_Union[Features, _Mapping]] = ..., inputs: _Optional[_Union[PoolRange, _Mapping]] = ..., radii_squared: _Optional[_Iterable[int]] = ..., kernel: _Optional[str] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ..., per_party: _Optional[bool] = ...) -> None: ...

class CountNearestRequest(_message.Message):
    __slots__ = ("terms", "features", "inputs", "edges", "edges_squared", "by_class", "round_id", "ledger_id")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    EDGES_SQUARED_FIELD_NUMBER: _ClassVar[int]
    BY_CLASS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    features: Features
    inputs: PoolRange
    edges: int
    edges_squared: bytes
    by_class: bool
    round_id: str
    ledger_id: str
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., features: _Optional[_Union[Features, _Mapping]] = ..., inputs: _Optional[_Union[PoolRange, _Mapping]] = ..., edges: _Optional[int] = ..., edges_squared: _Optional[bytes] = ..., by_class: _Optional[bool] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ...) -> None: ...

class Neighbours(_message.Message):
    __slots__ = ("queries", "classes", "counts")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    queries: int
    classes: int
    counts: bytes
    def __init__(self, queries: _Optional[int] = ..., classes: _Optional[int] = ..., counts: _Optional[bytes] = ...) -> None: ...

class KernelSpec(_message.Message):
    __slots__ = ("features", "landmarks", "bandwidth_squared", "ridge")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LANDMARKS_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_SQUARED_FIELD_NUMBER: _ClassVar[int]
    RIDGE_FIELD_NUMBER: _ClassVar[int]
    features: Features
    landmarks: _containers.RepeatedScalarFieldContainer[int]
    bandwidth_squared: int
    ridge: float
    def __init__(self, features: _Optional[_Union[Features, _Mapping]] = ..., landmarks: _Optional[_Iterable[int]] = ..., bandwidth_squared: _Optional[int] = ..., ridge: _Optional[float] = ...) -> None: ...

class SumClassesRequest(_message.Message):
    __slots__ = ("terms", "round_id", "ledger_id", "kernel", "pool_sha256", "per_party", "number")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    POOL_SHA256_FIELD_NUMBER: _ClassVar[int]
    PER_PARTY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    round_id: str
    ledger_id: str
    kernel: KernelSpec
    pool_sha256: str
    per_party: bool
    number: int
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ..., kernel: _Optional[_Union[KernelSpec, _Mapping]] = ..., pool_sha256: _Optional[str] = ..., per_party: _Optional[bool] = ..., number: _Optional[int] = ...) -> None: ...

class EvaluateRequest(_message.Message):
    __slots__ = ("terms", "round_id", "ledger_id", "per_party", "students", "number_of_classes")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PER_PARTY_FIELD_NUMBER: _ClassVar[int]
    STUDENTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_OF_CLASSES_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    round_id: str
    ledger_id: str
    per_party: bool
    students: _containers.RepeatedScalarFieldContainer[bytes]
    number_of_classes: int
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ..., per_party: _Optional[bool] = ..., students: _Optional[_Iterable[bytes]] = ..., number_of_classes: _Optional[int] = ...) -> None: ...

class CoverageSpec(_message.Message):
    __slots__ = ("features", "landmarks", "regions", "edges_squared")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LANDMARKS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    EDGES_SQUARED_FIELD_NUMBER: _ClassVar[int]
    features: Features
    landmarks: _containers.RepeatedScalarFieldContainer[int]
    regions: _containers.RepeatedScalarFieldContainer[int]
    edges_squared: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, features: _Optional[_Union[Features, _Mapping]] = ..., landmarks: _Optional[_Iterable[int]] = ..., regions: _Optional[_Iterable[int]] = ..., edges_squared: _Optional[_Iterable[int]] = ...) -> None: ...

class CountCoverageRequest(_message.Message):
    __slots__ = ("terms", "round_id", "ledger_id", "per_party", "coverage", "pool_sha256")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PER_PARTY_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    POOL_SHA256_FIELD_NUMBER: _ClassVar[int]
    terms: Terms
    round_id: str
    ledger_id: str
    per_party: bool
    coverage: CoverageSpec
    pool_sha256: str
    def __init__(self, terms: _Optional[_Union[Terms, _Mapping]] = ..., round_id: _Optional[str] = ..., ledger_id: _Optional[str] = ..., per_party: _Optional[bool] = ..., coverage: _Optional[_Union[CoverageSpec, _Mapping]] = ..., pool_sha256: _Optional[str] = ...) -> None: ...

class ShowEvaluationRequest(_message.Message):
    __slots__ = ("round_id", "counts", "noise_variance")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    round_id: str
    counts: _containers.RepeatedScalarFieldContainer[float]
    noise_variance: float
    def __init__(self, round_id: _Optional[str] = ..., counts: _Optional[_Iterable[float]] = ..., noise_variance: _Optional[float] = ...) -> None: ...

class Sums(_message.Message):
    __slots__ = ("queries", "classes", "counts")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    queries: int
    classes: int
    counts: bytes
    def __init__(self, queries: _Optional[int] = ..., classes: _Optional[int] = ..., counts: _Optional[bytes] = ...) -> None: ...
