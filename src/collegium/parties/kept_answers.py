"""A party's latest answers, in memory: a request that comes again gets the same bytes."""

import hashlib
from collections import OrderedDict

from collegium.errors import ProtocolViolation
from collegium.protocol.messages import Reply, Request

_MAX_ANSWERS = 256
_MAX_BYTES = 64 * 1024 * 1024


class AnswerMemory:
    """The latest answers by run and request id, at most 256 of them and 64 MiB beside the latest."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], tuple[bytes, bytes]] = OrderedDict()
        self._size_bytes = 0

    def recall(self, request: Request) -> Reply | None:
        """The answer to this request if it was given before.

        Raises
        ------
        ProtocolViolation
            If another request had this id.
        """
        kept = self._answers.get((request.run_id, request.request_id))
        if kept is None:
            return None
        asked, answer = kept
        if asked != fingerprint(request):
            raise ProtocolViolation("this request id was used for another request: use a fresh id")
        self._answers.move_to_end((request.run_id, request.request_id))
        return Reply.from_bytes(answer)

    def keep(self, request: Request, reply: Reply) -> None:
        """Remember an answer; the oldest are forgotten."""
        answer = reply.to_bytes()
        self._answers[(request.run_id, request.request_id)] = (fingerprint(request), answer)
        self._size_bytes += len(answer)
        while len(self._answers) > 1 and (len(self._answers) > _MAX_ANSWERS or self._size_bytes > _MAX_BYTES):
            _, (_, forgotten) = self._answers.popitem(last=False)
            self._size_bytes -= len(forgotten)


def fingerprint(request: Request) -> bytes:
    """The same 32 bytes for requests that ask the same within the same run, whatever their ids."""
    message = request.to_proto()
    message.request_id = ""
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()
