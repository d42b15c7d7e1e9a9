from collegium.protocol.v1 import collegium_pb2 as _collegium_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeJobService(_message.Message):
    __slots__ = ("protocol_version",)
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    def __init__(self, protocol_version: _Optional[int] = ...) -> None: ...

class JobServiceDescription(_message.Message):
    __slots__ = ("protocol_version", "consortium", "task_json", "pool", "student_json")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    TASK_JSON_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    STUDENT_JSON_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    consortium: str
    task_json: str
    pool: _collegium_pb2.ArraySpec
    student_json: str
    def __init__(self, protocol_version: _Optional[int] = ..., consortium: _Optional[str] = ..., task_json: _Optional[str] = ..., pool: _Optional[_Union[_collegium_pb2.ArraySpec, _Mapping]] = ..., student_json: _Optional[str] = ...) -> None: ...

class PoolFrom(_message.Message):
    __slots__ = ("sha256", "offset_bytes")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    offset_bytes: int
    def __init__(self, sha256: _Optional[str] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class LabelJob(_message.Message):
    __slots__ = ("job_id", "pool_sha256", "positions", "note")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    POOL_SHA256_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    pool_sha256: str
    positions: _containers.RepeatedScalarFieldContainer[int]
    note: str
    def __init__(self, job_id: _Optional[str] = ..., pool_sha256: _Optional[str] = ..., positions: _Optional[_Iterable[int]] = ..., note: _Optional[str] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "state", "reason", "inputs", "labelled", "ahead", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    LABELLED_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: str
    reason: str
    inputs: int
    labelled: int
    ahead: int
    labels: _containers.ScalarMap[int, int]
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., inputs: _Optional[int] = ..., labelled: _Optional[int] = ..., ahead: _Optional[int] = ..., labels: _Optional[_Mapping[int, int]] = ...) -> None: ...
