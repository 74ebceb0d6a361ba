from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemWalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPEN: _ClassVar[MemWalState]
    SEALED: _ClassVar[MemWalState]
    FLUSHED: _ClassVar[MemWalState]
    MERGED: _ClassVar[MemWalState]
OPEN: MemWalState
SEALED: MemWalState
FLUSHED: MemWalState
MERGED: MemWalState

class MemWalId(_message.Message):
    __slots__ = ("region", "generation")
    REGION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    region: str
    generation: int
    def __init__(self, region: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class MemWal(_message.Message):
    __slots__ = ("id", "mem_table_location", "wal_location", "wal_entries", "state", "owner_id", "last_updated_dataset_version")
    ID_FIELD_NUMBER: _ClassVar[int]
    MEM_TABLE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    WAL_LOCATION_FIELD_NUMBER: _ClassVar[int]
    WAL_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    id: MemWalId
    mem_table_location: str
    wal_location: str
    wal_entries: bytes
    state: MemWalState
    owner_id: str
    last_updated_dataset_version: int
    def __init__(self, id: _Optional[_Union[MemWalId, _Mapping]] = ..., mem_table_location: _Optional[str] = ..., wal_location: _Optional[str] = ..., wal_entries: _Optional[bytes] = ..., state: _Optional[_Union[MemWalState, str]] = ..., owner_id: _Optional[str] = ..., last_updated_dataset_version: _Optional[int] = ...) -> None: ...

class FirstIndexDetails(_message.Message):
    __slots__ = ("mem_wal_list",)
    MEM_WAL_LIST_FIELD_NUMBER: _ClassVar[int]
    mem_wal_list: _containers.RepeatedCompositeFieldContainer[MemWal]
    def __init__(self, mem_wal_list: _Optional[_Iterable[_Union[MemWal, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class RangeWithHoles(_message.Message):
    __slots__ = ("start", "end", "holes")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    holes: EncodedU64Array
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., holes: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...

class RangeWithBitmap(_message.Message):
    __slots__ = ("start", "end", "bitmap")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BITMAP_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    bitmap: bytes
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., bitmap: _Optional[bytes] = ...) -> None: ...

class U64Segment(_message.Message):
    __slots__ = ("range", "range_with_holes", "range_with_bitmap", "sorted_array", "array")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    RANGE_WITH_HOLES_FIELD_NUMBER: _ClassVar[int]
    RANGE_WITH_BITMAP_FIELD_NUMBER: _ClassVar[int]
    SORTED_ARRAY_FIELD_NUMBER: _ClassVar[int]
    ARRAY_FIELD_NUMBER: _ClassVar[int]
    range: Range
    range_with_holes: RangeWithHoles
    range_with_bitmap: RangeWithBitmap
    sorted_array: EncodedU64Array
    array: EncodedU64Array
    def __init__(self, range: _Optional[_Union[Range, _Mapping]] = ..., range_with_holes: _Optional[_Union[RangeWithHoles, _Mapping]] = ..., range_with_bitmap: _Optional[_Union[RangeWithBitmap, _Mapping]] = ..., sorted_array: _Optional[_Union[EncodedU64Array, _Mapping]] = ..., array: _Optional[_Union[EncodedU64Array, _Mapping]] = ...) -> None: ...

class U16Array(_message.Message):
    __slots__ = ("base", "offsets")
    BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    base: int
    offsets: bytes
    def __init__(self, base: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class U32Array(_message.Message):
    __slots__ = ("base", "offsets")
    BASE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    base: int
    offsets: bytes
    def __init__(self, base: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class U64Array(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    def __init__(self, values: _Optional[bytes] = ...) -> None: ...

class EncodedU64Array(_message.Message):
    __slots__ = ("u16_array", "u32_array", "u64_array")
    U16_ARRAY_FIELD_NUMBER: _ClassVar[int]
    U32_ARRAY_FIELD_NUMBER: _ClassVar[int]
    U64_ARRAY_FIELD_NUMBER: _ClassVar[int]
    u16_array: U16Array
    u32_array: U32Array
    u64_array: U64Array
    def __init__(self, u16_array: _Optional[_Union[U16Array, _Mapping]] = ..., u32_array: _Optional[_Union[U32Array, _Mapping]] = ..., u64_array: _Optional[_Union[U64Array, _Mapping]] = ...) -> None: ...
