from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReportBatch(_message.Message):
    __slots__ = ("metric", "revision", "batch_id", "time_ms", "levels", "values", "round", "attributes")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    metric: str
    revision: int
    batch_id: bytes
    time_ms: int
    levels: bytes
    values: bytes
    round: int
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    def __init__(self, metric: _Optional[str] = ..., revision: _Optional[int] = ..., batch_id: _Optional[bytes] = ..., time_ms: _Optional[int] = ..., levels: _Optional[bytes] = ..., values: _Optional[bytes] = ..., round: _Optional[int] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
