"""Whose turn it is in the local pool, without any process."""

from __future__ import annotations

from types import SimpleNamespace

from pumice.fair_queue import Lanes, Unit


def units(job, lane, count, first=0):
    return [Unit(first + number, job, number, lane) for number in range(count)]


def job(program="p", chunk=None):
    return SimpleNamespace(program=program, chunk=chunk)


def numbers(batch):
    return [unit.id for unit in batch]


def test_a_record_of_unknown_length_goes_alone_and_short_ones_together():
    lanes = Lanes()
    lanes.add("a", None, units(job(), "a", 100))
    assert len(lanes.take(0, 2)) == 1
    lanes.measured("p", 0.0005)
    assert len(lanes.take(0, 2)) == 8
    lanes.measured("p", 1.0)
    assert len(lanes.take(0, 2)) == 1
    assert lanes.waiting == 90


def test_the_last_records_are_spread_over_the_workers():
    lanes = Lanes()
    lanes.measured("p", 0.0)
    lanes.add("a", None, units(job(), "a", 8))
    assert [len(lanes.take(worker, 2)) for worker in (0, 1, 0, 1)] == [2, 1, 1, 1]


def test_a_fixed_chunk_stays_whole_and_does_not_mix_jobs():
    lanes = Lanes()
    first, second = job(chunk=3), job(chunk=3)
    lanes.add("a", None, [*units(first, "a", 4), *units(second, "a", 2, first=10)])
    assert [numbers(lanes.take(0, 1)) for _ in range(4)] == [[0, 1, 2], [3], [10, 11], []]


def test_lanes_take_turns():
    lanes = Lanes()
    lanes.add("a", None, units(job(), "a", 2))
    lanes.add("b", None, units(job(), "b", 2, first=10))
    assert [numbers(lanes.take(0, 1)) for _ in range(5)] == [[0], [10], [1], [11], []]


def test_a_cap_counts_workers_and_is_given_back():
    lanes = Lanes()
    lanes.add("a", 1, units(job(), "a", 3))
    (held,) = lanes.take(0, 2)
    assert lanes.take(1, 2) == []
    (also,) = lanes.take(0, 2)
    lanes.release(held, 0)
    assert lanes.take(1, 2) == []
    lanes.release(also, 0)
    assert numbers(lanes.take(1, 2)) == [2]


def test_cancelled_records_are_passed_over_and_returned_ones_go_first():
    lanes = Lanes()
    waiting = units(job(), "a", 3)
    lanes.add("a", None, waiting)
    waiting[0].waiting = False
    (taken,) = lanes.take(0, 1)
    assert taken.id == 1
    lanes.release(taken, 0)
    taken.waiting = True
    lanes.add("a", None, [taken], first=True)
    assert [numbers(lanes.take(0, 1)) for _ in range(3)] == [[1], [2], []]
    assert lanes.waiting == 0
