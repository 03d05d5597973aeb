"""Calls what the SDK's code interpreter exports, as its documentation shows it, and prints
a line of JSON for each method: whether it works or fails."""

import asyncio
import json

from e2b import NotFoundException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox


def works(method):
    def run(call):
        line = {"method": method, "result": "works"}
        try:
            call()
        except BaseException as e:  # also what is no Exception
            line = {"method": method, "result": "fails", "note": f"{type(e).__name__}: {e}"[:500]}
        print(json.dumps(line), flush=True)

    return run


def rejects(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


sbx = Sandbox.create(timeout=600, envs={"FROM": "create"})


@works("runCode")
def _():
    r = sbx.run_code("x = 20; x + 1")
    assert (r.text, r.execution_count, r.results[0].is_main_result) == ("21", 1, True), r
    assert sbx.run_code("x").text == "20"


@works("runCode, output as it comes")
def _():
    out, err = [], []
    r = sbx.run_code("import sys; print(1); print(2, file=sys.stderr)", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(m.line for m in out), "".join(m.line for m in err)) == ("1\n", "2\n")
    assert (r.logs.stdout, r.logs.stderr) == (["1\n"], ["2\n"])


@works("runCode, errors")
def _():
    r = sbx.run_code("1 / 0")
    assert (r.error.name, r.error.value) == ("ZeroDivisionError", "division by zero")


@works("runCode, envs")
def _():
    code = "import os; os.environ.get('A', 'gone') + os.environ['FROM']"
    assert sbx.run_code(code, envs={"A": "b "}).text == "b create"
    assert sbx.run_code(code).text == "gonecreate"


@works("results: data frames")
def _():
    r = sbx.run_code("import pandas as pd\npd.DataFrame({'n': [1, 2.5, None]})")
    assert r.results[0].data == {"n": [1, 2.5, None]}, r.results[0].data


@works("results: charts")
def _():
    r = sbx.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('T')\nplt.show()")
    chart = r.results[0].chart
    assert (chart.type.value, chart.title) == ("line", "T")
    assert [tuple(p) for p in chart.elements[0].points] == [(1, 3), (2, 4)]
    assert r.results[0].png


@works("language: javascript")
def _():
    assert sbx.run_code("await Promise.resolve(42)", language="javascript").text == "42"


@works("language: bash")
def _():
    assert sbx.run_code("echo hi", language="bash").logs.stdout == ["hi\n"]


@works("createCodeContext")
def _():
    context = sbx.create_code_context(cwd="/tmp", language="python")
    assert (context.language, context.cwd) == ("python", "/tmp")
    assert sbx.run_code("x", context=context).error.name == "NameError"
    sbx.remove_code_context(context)
    rejects(NotFoundException, lambda: sbx.run_code("1", context=context))
    rejects(NotFoundException, lambda: sbx.remove_code_context("nope"))


@works("listCodeContexts")
def _():
    assert {"python", "javascript"} <= {c.language for c in sbx.list_code_contexts()}


@works("restartCodeContext")
def _():
    context = next(c for c in sbx.list_code_contexts() if c.language == "python")
    sbx.restart_code_context(context)
    assert sbx.run_code("x").error.name == "NameError"


@works("runCode, its timeout")
def _():
    sbx.run_code("left = 1")
    rejects(TimeoutException, lambda: sbx.run_code("import time\nwhile True: time.sleep(1)", timeout=2))
    assert sbx.run_code("left", timeout=20).text == "1"


@works("the asynchronous client")
def _():
    async def all_of_it():
        one = await AsyncSandbox.connect(sbx.sandbox_id)
        context = await one.create_code_context()
        runs = await asyncio.gather(one.run_code("1 + 1"), one.run_code("2 + 2", context=context))
        assert [r.text for r in runs] == ["2", "4"]

    asyncio.run(all_of_it())


@works("a killed sandbox")
def _():
    sbx.kill()
    rejects(TimeoutException, lambda: sbx.run_code("1"))
