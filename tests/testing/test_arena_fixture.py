"""``ares_arena``: faults for the tests of whoever writes plugins."""

from ares import Runtime, Workflow
from ares.plugins import ArenaPlugin
from ares.testing import RecordingPlugin


def test_a_plugin_is_struck_inside_and_not_after(ares_arena: ArenaPlugin, ares_recorder: RecordingPlugin) -> None:
    wf = Workflow("w")
    wf.step(lambda: 1, id="a")

    with Runtime(plugins=[ares_arena, ares_recorder]) as runtime:
        with ares_arena.injecting(runtime.bus):
            ares_arena.schedule_fault(ares_recorder.name, "error", call="before_step")
            struck = runtime.run(wf)
        spared = runtime.run(wf)

    assert struck.outputs == spared.outputs == {"a": 1}
    assert any(ares_recorder.name in warning for warning in struck.warnings)
    assert spared.warnings == ()
    assert ares_arena.faults == ()
