"""Runs of agents, with a scripted model: SKETE_SCRIPTED says that the server has it."""

import os

import pytest

from skete import AsyncSkete, ConflictError, Skete

pytestmark = pytest.mark.skipif(not os.environ.get("SKETE_SCRIPTED"), reason="the server has no scripted model")


def test_a_run_asks_is_answered_and_ends(client: Skete) -> None:
    run = client.start_run("Act.", agent="careful", labels={"of": "py"})
    for event in run.events():
        if event["kind"] == "approval.asked":
            break
    [asked] = run.approvals()
    assert asked["tool"] == "execute" and asked["call"] in [a["call"] for a in client.approvals()]
    run.decide(asked["call"], "edit", args={"command": "echo changed"})
    with pytest.raises(ConflictError):
        run.decide(asked["call"], "approve")
    done = run.wait()
    assert done["state"] == "succeeded" and "changed" in done.get("text", "")
    events = list(run.events())
    assert [e["seq"] for e in events] == list(range(events[0]["seq"], events[0]["seq"] + len(events)))
    assert list(run.events(events[3]["seq"], follow=False)) == events[3:]
    assert list(run.live())[-1][0] == "end"
    assert run.output(asked["call"]).startswith(b"changed\n")
    assert run.transcript()["total"] == 2 and run.todos() == []
    assert [r["id"] for r in client.runs(labels={"of": "py"})] == [run.id]


async def test_a_run_is_cancelled() -> None:
    async with AsyncSkete() as client:
        run = await client.start_run("Act.", agent="careful")
        async for event in run.events():
            if event["kind"] == "approval.asked":
                break
        await run.cancel("enough")
        assert (await run.wait())["state"] == "cancelled"
