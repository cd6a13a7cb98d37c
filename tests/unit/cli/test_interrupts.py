"""Signals as one orderly end."""

import os
import signal
import subprocess
import sys

import pytest

WORK = """
import asyncio
from outrider.cli.terminal import interrupts

async def work():
    try:
        print("works", flush=True)
        await asyncio.Event().wait()
    finally:
        print("cleans up", flush=True)

interrupts.run(work())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_work_though_nobody_reads_standard_error(
    number: signal.Signals,
) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-P", "-c", WORK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=write, text=True) as process:
        os.close(write)
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        process.send_signal(number)
        try:
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert rest == "cleans up\n"
