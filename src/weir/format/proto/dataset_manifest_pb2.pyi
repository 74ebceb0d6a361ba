from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Manifest(_message.Message):
    __slots__ = ("fields", "fragments")
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    fragments: _containers.RepeatedCompositeFieldContainer[Fragment]
    def __init__(self, fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ..., fragments: _Optional[_Iterable[_Union[Fragment, _Mapping]]] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("id", "parent_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    parent_id: int
    def __init__(self, id: _Optional[int] = ..., parent_id: _Optional[int] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[DataFile]
    def __init__(self, files: _Optional[_Iterable[_Union[DataFile, _Mapping]]] = ...) -> None: ...

class DataFile(_message.Message):
    __slots__ = ("fields",)
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, fields: _Optional[_Iterable[int]] = ...) -> None: ...
