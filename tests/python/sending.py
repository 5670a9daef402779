"""People of a fleet whose servers come and go: who sends jobs and notes what was answered, and who follows them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import grpc
from armada_client.armada import event_pb2, submit_pb2
from armada_client.client import ArmadaClient
from armada_client.event import Event

from fleet import Identity, is_end, job, read

JOB_SET = "storm"
# For one call, seconds.
CALL = 10.0
# What a call says to which there is no answer: it may have been done or not.
NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
# Jobs of a queue that have not ended, at most.
OPEN_MAX = 30
# How jobs are to end, and how often that is wanted.
ENDS = {"succeeded": 16, "failed": 2, "cancelled": 3}
Answer = TypeVar("Answer")


class Book:
    """What was answered and what was told, of one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.lock = threading.Lock()
        # How jobs are to end.
        self.wanted: dict[str, str] = {}
        # How they have.
        self.ends: dict[str, str] = {}
        # All messages in their order, and of which kind and job each is.
        self.told: list[tuple[str, str, str]] = []
        self.broken: Exception | None = None

    def open(self) -> list[str]:
        """Jobs that have not ended."""
        with self.lock:
            return [job_id for job_id in self.wanted if job_id not in self.ends]


class Person(threading.Thread):
    """Somebody who asks any of the servers, and asks again where there is no answer."""

    def __init__(self, book: Book, who: Identity, addresses: list[str], seed: str) -> None:
        super().__init__(daemon=True)
        self.book = book
        self.random = random.Random(seed)
        self.counted: Counter[str] = Counter()
        self.is_over = threading.Event()
        self._who = who
        self._addresses = addresses
        self._clients: dict[str, ArmadaClient] = {}

    def any_client(self) -> ArmadaClient:
        """One of some server."""
        address = self.random.choice(self._addresses)
        if address not in self._clients:
            self._clients[address] = self._who.client(address)
        return self._clients[address]

    def insist(self, what: str, call: Callable[[ArmadaClient], Answer]) -> Answer:
        """Calls until there is an answer."""
        while True:
            try:
                answer = call(self.any_client())
                self.counted[what] += 1
                return answer
            except grpc.RpcError as error:
                if error.code() not in NO_ANSWER:
                    raise
                self.counted[f"{what} without an answer"] += 1
                time.sleep(self.random.uniform(0.05, 0.3))

    def run(self) -> None:
        """Does its work, and notes why it can't go on."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread is to tell
            self.book.broken = error

    def work(self) -> None:
        """What it does until it is over."""
        raise NotImplementedError


class Sender(Person):
    """Sends jobs all along, and cancels some."""

    def __init__(
        self, book: Book, who: Identity, addresses: list[str], seed: str, spec: Callable[[float, int], object]
    ) -> None:
        """`spec` gives the pod of a job that lasts so many seconds and ends with that code."""
        super().__init__(book, who, addresses, seed)
        self._spec = spec
        self._sent = 0
        self._cancels: list[tuple[float, str]] = []

    def work(self) -> None:
        """Until it is over, and all that is to be cancelled is."""
        while not self.is_over.is_set() or self._cancels:
            self._cancel(time.monotonic())
            if self.is_over.is_set() or len(self.book.open()) >= OPEN_MAX:
                time.sleep(0.05)
            else:
                self._send()

    def _send(self) -> None:
        wants = self.random.choices(list(ENDS), list(ENDS.values()), k=self.random.randint(1, 8))
        items = [self._item(want) for want in wants]
        request = submit_pb2.JobSubmitRequest(queue=self.book.queue, job_set_id=JOB_SET, job_request_items=items)
        ids = self._submit(request)
        # Who never got an answer, or lost it, sends again what is there already.
        if self.random.random() < 0.2:
            again = self._submit(request)
            assert again == ids, f"the same client ids are the jobs {ids}, and then {again}"
        with self.book.lock:
            assert not self.book.wanted.keys() & ids, f"{ids} were given out before"
            self.book.wanted.update(zip(ids, wants, strict=True))
        due = time.monotonic() + self.random.uniform(0, 8)
        self._cancels.extend((due, job_id) for job_id, want in zip(ids, wants, strict=True) if want == "cancelled")

    def _submit(self, request: submit_pb2.JobSubmitRequest) -> list[str]:
        answer = self.insist("submissions", lambda client: client.submit_stub.SubmitJobs(request, timeout=CALL))
        assert len(answer.job_response_items) == len(request.job_request_items)
        assert not any(item.error for item in answer.job_response_items), answer
        return [item.job_id for item in answer.job_response_items]

    def _item(self, want: str) -> submit_pb2.JobSubmitRequestItem:
        self._sent += 1
        # What is to be cancelled does not end by itself.
        lasts = 3600.0 if want == "cancelled" else self.random.choice((0.0, self.random.uniform(0, 3)))
        return job(self._spec(lasts, 3 if want == "failed" else 0), client_id=f"{self.book.queue}-{self._sent}")

    def _cancel(self, now: float) -> None:
        due = [job_id for at, job_id in self._cancels if at <= now]
        for job_id in due:
            request = submit_pb2.JobCancelRequest(queue=self.book.queue, job_set_id=JOB_SET, job_ids=[job_id])
            self.insist("cancels", lambda client, request=request: client.submit_stub.CancelJobs(request, timeout=CALL))
        self._cancels = [(at, job_id) for at, job_id in self._cancels if at > now]


class Follower(Person):
    """Follows a job set over one stream after another, each from another server and after the last message before."""

    stream: grpc.Call | None = None

    def work(self) -> None:
        """Until it is over."""
        while not self.is_over.is_set():
            client, enough = self.any_client(), self.random.randint(1, 200)
            after = self.book.told[-1][0] if self.book.told else ""
            request = event_pb2.JobSetRequest(queue=self.book.queue, id=JOB_SET, watch=True, from_message_id=after)
            self.stream = stream = client.event_stub.GetJobSetEvents(request)
            self.counted["streams"] += 1
            try:
                for message in stream:
                    self._take(client.unmarshal_event_response(message))
                    enough -= 1
                    if enough == 0:
                        break
            except grpc.RpcError as error:
                if error.code() not in NO_ANSWER:
                    raise
                self.counted["streams broken"] += 1
                time.sleep(self.random.uniform(0.05, 0.3))
            finally:
                stream.cancel()

    def _take(self, event: Event) -> None:
        kind, job_id = event.type.value, event.message.job_id
        with self.book.lock:
            self.book.told.append((event.id, kind, job_id))
            if is_end(event):
                before = self.book.ends.get(job_id)
                assert before is None, f"{job_id} ended as {before}, and then as {kind}"
                self.book.ends[job_id] = kind

    def end(self) -> None:
        """Ends the stream."""
        self.is_over.set()
        if self.stream is not None:
            self.stream.cancel()


def whole(client: ArmadaClient, queue: str) -> list[tuple[str, str, str]]:
    """All messages of a queue's job set, as a server tells them now."""
    return [(event.id, event.type.value, event.message.job_id) for event in read(client, queue, JOB_SET)]
