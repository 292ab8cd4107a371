"""How a page is read, and how an output is compared with it."""

from __future__ import annotations

import pytest

from .compare import differences, masked
from .pages import Command, File, PageError, parse
from .run_page import CannotRun, run_page


def block(*lines: str, language: str = "console") -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


def test_commands_and_their_output() -> None:
    page = parse("# Title\n\n" + block("$ ls", "a", "b", "", "$ true"))
    assert page.steps == [Command(4, "ls", ("a", "b", "")), Command(8, "true", ())]


def test_a_command_over_two_lines() -> None:
    page = parse(block("$ echo a \\", "> b \\", "  c", "a b c"))
    assert page.commands == [Command(2, "echo a \\\nb \\\n  c", ("a b c",))]


def test_an_exit_code_is_the_last_commands() -> None:
    page = parse("% exit: 3\n" + block("$ true", "$ false") + block("$ true"))
    assert [command.code for command in page.commands] == [0, 3, 0]


def test_files_and_hidden_commands_in_order() -> None:
    text = "% file: a.py\n" + block("x = 1", "", language="python") + "% setup: rm -f b\n" + block("$ python a.py")
    page = parse(text)
    assert page.steps == [File("a.py", "x = 1\n\n"), Command(6, "rm -f b", None), Command(8, "python a.py", ())]


def test_what_holds_for_the_page() -> None:
    page = parse("% environment: jax\n% hosts: 2\n")
    assert (page.environment, page.hosts, page.slurm) == ("jax", 2, False)
    assert parse("% hosts: 3 with slurm\n").slurm


def test_a_block_that_is_not_run() -> None:
    page = parse("% not run here: needs Slurm\n" + block("$ srun hostname"))
    assert page.steps == [] and page.not_run == [(2, "needs Slurm")]


def test_a_terminal_block_that_no_test_runs() -> None:
    steered = (
        "% file: a\n" + block("x", language="bash") + "% not run here: needs Slurm\n" + block("x", language="bash")
    )
    assert parse(steered + block("x", language="python")).not_checked == []
    found = parse(steered + block("x", language="bash") + block("x", language="text")).not_checked
    assert [one.line for one in found] == [9, 12]


def test_a_directive_with_an_argument_is_a_block_too() -> None:
    assert parse("```{include} ../a.md\n:relative-docs: docs/\n```\n" + block("$ ls")).commands == [
        Command(5, "ls", ())
    ]


def test_a_block_in_a_list_or_a_tab() -> None:
    page = parse(":::{tab-item} a\n   ```console\n   $ ls\n     a\n   ```\n:::\n````md\n```console\n```\n````\n")
    assert page.steps == [Command(3, "ls", ("  a",))]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (block("a"), "line 2: a console block begins with a command"),
        (block(), "without a command"),
        ("```console\n$ ls\n", "line 1: the block does not end"),
        ("% exit: 1\n" + block("x", language="text"), "'% exit:' stands before no console block"),
        ("% file: a\n" + block("$ ls"), "a console block is no file"),
        ("% hosts: h1\n", "line 1: neither '% hosts: N' nor '% hosts: N with slurm'"),
        ("% exit: 1\n", "line 1: no block follows '% exit:'"),
    ],
)
def test_faults_of_a_page(text: str, fault: str) -> None:
    with pytest.raises(PageError, match=fault.replace("%", r"\%")):
        parse(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[0] loss 0.25, 1,024 samples/s", "[12] loss 1e-05, 9 samples/s"),
        ("pid 4711, job 3fa9c01b", "pid 2, job 88aa01"),
        ("/home/me/train.py:88 in step", "/work/train.py:9 in step"),
        ("ended after 5 s, 20 ms each", "ended after 1.5 s, 3\u00b5s each"),
        ("16 GiB", "800 MiB"),
        ("a    b", "a b "),
        ("\x1b[31mred\x1b[0m", "red"),
        ("version 0.1.0", "version 2.13.0"),
        ("ranks 0-3", "ranks 4-17"),
        ("/tmp/tmpabc/x", "/tmp/other"),
        ('File "/home/me/train.py", line 8', 'File "/tmp/x7/work/train.py", line 9'),
        ("Nov 29 10:00:01", "Jan 1 23:59:59"),
    ],
)
def test_what_is_masked(one: str, other: str) -> None:
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("h1", "h2"), ("rank", "ranks"), ("added", "faded"), ("loss 1", "loss nan")],
)
def test_what_is_not_masked(one: str, other: str) -> None:
    assert masked(one) != masked(other)


def test_the_order_does_not_matter_and_the_number_does() -> None:
    assert differences(["a", "b"], "b\na\n") == []
    assert differences(["a", "a"], "a\n") == ["- a"]
    assert differences(["a"], "a\n\nb\n") == ["+ b"]


def test_lines_left_out() -> None:
    assert differences(["a", "..."], "b\na\nc\n") == []
    assert differences(["..."], "") == []
    assert differences(["a", "..."], "b\n") == ["- a"]


def test_words_left_out_of_a_line() -> None:
    assert differences(["a 1 ... b"], "a  2 x y b\n") == []
    assert differences(["a ... b"] * 2, "a b\na c b\n") == []
    assert differences(["a ... b"], "a ... b\n") == []
    assert differences(["... b 1", "a ..."], "x b 2\na c\n") == []
    assert differences(["a..."], "abc\n") == ["- a...", "+ abc"]
    assert differences(["a ... b"], "ax b\n") == ["- a ... b", "+ ax b"]
    assert differences(["a ... b"], "a xb\n") == ["- a ... b", "+ a xb"]


def test_a_bar_is_what_it_shows_in_the_end() -> None:
    assert differences(["100 %"], "10 %\r50 %\r100 %\n") == []


def test_what_another_tool_prints_by_chance_does_not_count() -> None:
    warning = "plm:rsh: Warning: setpgid(13,13) failed in parent with errno=Permission denied(13)"
    assert differences(["a"], f"[head:00008] {warning}\na\n") == []
    assert differences(["a"], "[head:00008] plm:rsh: another line\na\n") != []


def test_a_page_runs_in_one_shell() -> None:
    text = "% file: in/a.txt\n" + block("text", language="text")
    text += block("$ x=7; cd in", "$ cat a.txt; echo $x >&2", "text", "7")
    text += "% exit: 3\n" + block("$ (exit 3)", "$ if", "wrong")
    try:
        outcomes = run_page(parse(text))
    except CannotRun as reason:
        pytest.skip(str(reason))
    assert [bool(outcome.faults) for outcome in outcomes] == [False, False, True, True]
    assert outcomes[2].faults == ["exit code 3, the page says 0"]


def test_a_page_that_does_not_end() -> None:
    try:
        outcomes = run_page(parse(block("$ true", "$ sleep 60", "$ true")), limit=1.0)
    except CannotRun as reason:
        pytest.skip(str(reason))
    assert [outcome.faults for outcome in outcomes] == [[], ["it did not end"], ["it did not end"]]
