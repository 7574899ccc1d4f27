"""Of two processes one leaves a request with a name. What holds in one process is in the suite of stores."""

from ares.journal.owner import this_process
from ares.stores.opening import open_store
from tests.stores.children import finish, start
from tests.stores.store_contract import new, rows


def test_of_two_processes_exactly_one_leaves_each(place: str) -> None:
    code = """
import sys
from ares.stores.opening import open_store

store = open_store(sys.argv[1])
store.open()
print("open", flush=True)
sys.stdin.readline()
print(",".join(str(n) for n in range(100) if store.request("e1", "answer", sys.argv[2], str(n))))
store.close()
"""
    store = open_store(place)
    store.open()
    lease = store.start_lease(this_process())
    store.create(new(), lease, "RUNNING", rows(1))
    children = [start(code, place, name) for name in ("left", "right")]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    left, right = ({int(n) for n in finish(child).split(",") if n.strip()} for child in children)

    assert left | right == set(range(100))
    assert not left & right
    assert {int(r.name) for r in store.requests(lease) if r.body == "left"} == left
    assert {int(r.name) for r in store.requests(lease) if r.body == "right"} == right
    store.close()
