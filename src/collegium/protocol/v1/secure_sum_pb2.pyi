from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SecureSumRequest(_message.Message):
    __slots__ = ("setup", "advertise_keys", "share_keys", "mask_input", "sign_survivors", "unmask")
    SETUP_FIELD_NUMBER: _ClassVar[int]
    ADVERTISE_KEYS_FIELD_NUMBER: _ClassVar[int]
    SHARE_KEYS_FIELD_NUMBER: _ClassVar[int]
    MASK_INPUT_FIELD_NUMBER: _ClassVar[int]
    SIGN_SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    UNMASK_FIELD_NUMBER: _ClassVar[int]
    setup: bytes
    advertise_keys: AdvertiseKeys
    share_keys: ShareKeys
    mask_input: MaskInput
    sign_survivors: SignSurvivors
    unmask: Unmask
    def __init__(self, setup: _Optional[bytes] = ..., advertise_keys: _Optional[_Union[AdvertiseKeys, _Mapping]] = ..., share_keys: _Optional[_Union[ShareKeys, _Mapping]] = ..., mask_input: _Optional[_Union[MaskInput, _Mapping]] = ..., sign_survivors: _Optional[_Union[SignSurvivors, _Mapping]] = ..., unmask: _Optional[_Union[Unmask, _Mapping]] = ...) -> None: ...

class SecureSumReply(_message.Message):
    __slots__ = ("setup", "keys_advertised", "keys_shared", "input_masked", "survivors_signed", "unmasked")
    SETUP_FIELD_NUMBER: _ClassVar[int]
    KEYS_ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    KEYS_SHARED_FIELD_NUMBER: _ClassVar[int]
    INPUT_MASKED_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_SIGNED_FIELD_NUMBER: _ClassVar[int]
    UNMASKED_FIELD_NUMBER: _ClassVar[int]
    setup: bytes
    keys_advertised: KeysAdvertised
    keys_shared: KeysShared
    input_masked: InputMasked
    survivors_signed: SurvivorsSigned
    unmasked: Unmasked
    def __init__(self, setup: _Optional[bytes] = ..., keys_advertised: _Optional[_Union[KeysAdvertised, _Mapping]] = ..., keys_shared: _Optional[_Union[KeysShared, _Mapping]] = ..., input_masked: _Optional[_Union[InputMasked, _Mapping]] = ..., survivors_signed: _Optional[_Union[SurvivorsSigned, _Mapping]] = ..., unmasked: _Optional[_Union[Unmasked, _Mapping]] = ...) -> None: ...

class SumParameters(_message.Message):
    __slots__ = ("consortium", "round_id", "length", "low", "high", "ring_bits", "neighbours", "threshold", "colluding", "security_bits", "noise_reach", "quorum", "groups", "left_out", "summed")
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    RING_BITS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    COLLUDING_FIELD_NUMBER: _ClassVar[int]
    SECURITY_BITS_FIELD_NUMBER: _ClassVar[int]
    NOISE_REACH_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    SUMMED_FIELD_NUMBER: _ClassVar[int]
    consortium: str
    round_id: str
    length: int
    low: int
    high: int
    ring_bits: int
    neighbours: int
    threshold: int
    colluding: int
    security_bits: int
    noise_reach: int
    quorum: int
    groups: int
    left_out: int
    summed: int
    def __init__(self, consortium: _Optional[str] = ..., round_id: _Optional[str] = ..., length: _Optional[int] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., ring_bits: _Optional[int] = ..., neighbours: _Optional[int] = ..., threshold: _Optional[int] = ..., colluding: _Optional[int] = ..., security_bits: _Optional[int] = ..., noise_reach: _Optional[int] = ..., quorum: _Optional[int] = ..., groups: _Optional[int] = ..., left_out: _Optional[int] = ..., summed: _Optional[int] = ...) -> None: ...

class AdvertiseKeys(_message.Message):
    __slots__ = ("parameters",)
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    parameters: SumParameters
    def __init__(self, parameters: _Optional[_Union[SumParameters, _Mapping]] = ...) -> None: ...

class KeysAdvertised(_message.Message):
    __slots__ = ("advert",)
    ADVERT_FIELD_NUMBER: _ClassVar[int]
    advert: bytes
    def __init__(self, advert: _Optional[bytes] = ...) -> None: ...

class ShareKeys(_message.Message):
    __slots__ = ("holders", "adverts", "root", "proof")
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    ADVERTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    holders: bytes
    adverts: bytes
    root: bytes
    proof: bytes
    def __init__(self, holders: _Optional[bytes] = ..., adverts: _Optional[bytes] = ..., root: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class KeysShared(_message.Message):
    __slots__ = ("self_seed_commitment", "shares")
    SELF_SEED_COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    self_seed_commitment: bytes
    shares: bytes
    def __init__(self, self_seed_commitment: _Optional[bytes] = ..., shares: _Optional[bytes] = ...) -> None: ...

class MaskInput(_message.Message):
    __slots__ = ("sharers", "senders", "shares", "adverts")
    SHARERS_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    ADVERTS_FIELD_NUMBER: _ClassVar[int]
    sharers: bytes
    senders: bytes
    shares: bytes
    adverts: bytes
    def __init__(self, sharers: _Optional[bytes] = ..., senders: _Optional[bytes] = ..., shares: _Optional[bytes] = ..., adverts: _Optional[bytes] = ...) -> None: ...

class InputMasked(_message.Message):
    __slots__ = ("ring_bits", "vector", "view_signature")
    RING_BITS_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    VIEW_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ring_bits: int
    vector: bytes
    view_signature: bytes
    def __init__(self, ring_bits: _Optional[int] = ..., vector: _Optional[bytes] = ..., view_signature: _Optional[bytes] = ...) -> None: ...

class SignSurvivors(_message.Message):
    __slots__ = ("survivors",)
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    survivors: bytes
    def __init__(self, survivors: _Optional[bytes] = ...) -> None: ...

class SurvivorsSigned(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class Unmask(_message.Message):
    __slots__ = ("survivors", "dropped", "signers", "root", "signatures", "proof", "view_signatures")
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    SIGNERS_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    VIEW_SIGNATURES_FIELD_NUMBER: _ClassVar[int]
    survivors: bytes
    dropped: bytes
    signers: bytes
    root: bytes
    signatures: bytes
    proof: bytes
    view_signatures: bytes
    def __init__(self, survivors: _Optional[bytes] = ..., dropped: _Optional[bytes] = ..., signers: _Optional[bytes] = ..., root: _Optional[bytes] = ..., signatures: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., view_signatures: _Optional[bytes] = ...) -> None: ...

class Unmasked(_message.Message):
    __slots__ = ("shares",)
    SHARES_FIELD_NUMBER: _ClassVar[int]
    shares: bytes
    def __init__(self, shares: _Optional[bytes] = ...) -> None: ...
