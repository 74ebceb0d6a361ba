"""Sets of what there is, read by one thread while others add to them."""

from __future__ import annotations

import threading

from weir.engine.living import Living


class Thing:
    """Something that can be referred to weakly."""


def test_it_is_read_while_others_add_to_it() -> None:
    living: Living[Thing] = Living()
    kept: list[Thing] = []
    is_over = threading.Event()

    def add() -> None:
        while not is_over.is_set():
            one = Thing()
            living.add(one)
            kept.append(one)
            if len(kept) > 500:
                living.discard(kept.pop())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(500):
            assert len(living.all()) >= 0
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert {*living.all()} >= {*kept}


def test_it_keeps_nothing_alive() -> None:
    living: Living[Thing] = Living()
    one = Thing()
    living.add(one)
    assert one in living
    del one
    assert living.all() == []
