"""Flask under gunicorn: real workers, reloaded, stopped and killed; what was ordered is done, and done once."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ares import Runtime
from tests.examples.partner import Partner
from tests.examples.programs import ROOT, Site, children_of, eventually

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)

Start = Callable[[], Site]

CONF = ROOT / "examples" / "flask_orders" / "gunicorn_conf.py"
MODES = {"threads": ("--workers", "2", "--threads", "4"), "prefork": ("--workers", "3", "--preload")}


@pytest.fixture(params=MODES)
def start(request: pytest.FixtureRequest, tmp_path: Path, partner: Partner) -> Iterator[Start]:
    """Starts the site, on one store; all that was started is killed in the end."""
    started: list[Site] = []

    def begin() -> Site:
        words = ["-m", "gunicorn", "-c", CONF, "--bind", "127.0.0.1:0", *MODES[request.param]]
        started.append(Site([*words, "examples.flask_orders.app:app"], tmp_path, ORDERS_WAREHOUSE=partner.url))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def status_of(site: Site, order: str) -> str:
    return str(site.ask("GET", f"/orders/{order}")[1]["status"])


def are_done(site: Site, orders: list[str]) -> bool:
    return all(status_of(site, order) == "COMPLETED" for order in orders)


def workers_that_answered(site: Site, count: int) -> set[int]:
    """Ask until so many workers have run a workflow."""
    seen: set[int] = set()

    def have_answered() -> bool:
        code, said = site.ask("POST", "/quotes", {"amount": 10})
        assert (code, said["price"]) == (200, 10.0)
        seen.add(said["worker"])
        return len(seen) >= count

    eventually(have_answered)
    return seen


def workers_of(site: Site) -> set[int]:
    """Its workers, once all are there."""
    count = int(site.words[site.words.index("--workers") + 1])
    eventually(lambda: len(children_of(site.pid)) == count)
    return set(children_of(site.pid))


def wait_until_exiting(site: Site, workers: set[int]) -> None:
    """Until these workers take no more requests and are about to close their Runtimes."""
    for worker in workers:
        site.wait_until_said(rf"Worker exiting \(pid: {worker}\)")


def test_each_worker_runs_workflows_and_tells_of_those_of_others(start: Start, partner: Partner) -> None:
    site = start()
    assert workers_that_answered(site, 2) <= workers_of(site)
    assert site.ask("PUT", "/orders/small", {"amount": 5})[0] == 202
    assert site.ask("PUT", "/orders/small", {"amount": 5})[0] == 202
    eventually(lambda: are_done(site, ["small"]))
    assert site.ask("GET", "/orders/small")[1]["outputs"] == {
        "reserve": "done: small 5",
        "approve": True,
        "ship": "done: small 5",
    }
    assert partner.heard("ship") == ["small 5"]

    site.ask("PUT", "/orders/large", {"amount": 5000})
    eventually(lambda: status_of(site, "large") == "WAITING")
    assert site.ask("GET", "/orders/large")[1]["questions"] == ["Ship 5000 pieces on credit?"]
    assert site.ask("POST", "/orders/large/answer", {"approved": True})[0] == 202
    eventually(lambda: are_done(site, ["large"]))
    assert partner.repeated("reserve") == {}

    assert site.ask("POST", "/orders/small/answer", {"approved": True})[0] == 404
    assert site.ask("GET", "/orders/other")[0] == 404
    assert site.ask("PUT", "/orders/small", {"amount": 6})[0] == 409
    assert site.ask("PUT", "/orders/odd", {"pieces": 5})[0] == 400


def test_a_reload_and_a_stop_lose_nothing_and_run_nothing_twice(start: Start, partner: Partner, tmp_path: Path) -> None:
    site = start()
    orders = [f"order-{n}" for n in range(12)]
    before = workers_of(site)

    with partner.holding("reserve"):
        for order in orders[:6]:
            site.ask("PUT", f"/orders/{order}", {"amount": 1})
        partner.wait_for("reserve", 6)
        site.signal(signal.SIGHUP)
        wait_until_exiting(site, before)
    for order in orders[6:]:
        site.ask("PUT", f"/orders/{order}", {"amount": 1})
    eventually(lambda: are_done(site, orders))
    eventually(lambda: not before.intersection(children_of(site.pid)))
    workers_that_answered(site, 2)

    late = [f"late-{n}" for n in range(6)]
    with partner.holding("ship"):
        for order in late:
            site.ask("PUT", f"/orders/{order}", {"amount": 1})
        site.ask("PUT", "/orders/asks", {"amount": 5000})
        eventually(lambda: status_of(site, "asks") == "WAITING")
        partner.wait_for("ship", len(orders) + len(late))
        after = workers_of(site)
        site.signal(signal.SIGTERM)
        wait_until_exiting(site, after)
    assert site.finish() == 0

    site = start()
    site.ask("POST", "/orders/asks/answer", {"approved": True})
    eventually(lambda: are_done(site, [*orders, *late, "asks"]))
    everything = sorted(f"{order} {5000 if order == 'asks' else 1}" for order in [*orders, *late, "asks"])
    assert sorted(partner.heard("reserve")) == everything
    assert sorted(partner.heard("ship")) == everything
    assert len(partner.keys("ship")) == len(everything)
    with Runtime(tmp_path / "orders.db") as runtime:
        assert {str(each.status) for each in runtime.executions()} == {"COMPLETED"}


def test_what_a_killed_worker_left_is_gone_on_with_by_another(start: Start, partner: Partner) -> None:
    site = start()

    with partner.holding("ship"):
        walking = site.ask("PUT", "/orders/unlucky", {"amount": 3})[1]["worker"]
        partner.wait_for("ship")
        os.kill(walking, signal.SIGKILL)
        partner.wait_for("ship", 2)
    eventually(lambda: are_done(site, ["unlucky"]))

    assert partner.heard("reserve") == ["unlucky 3"]
    assert partner.heard("ship") == ["unlucky 3", "unlucky 3"]
    assert len(partner.keys("ship")) == 1
