#!/usr/bin/env python3
"""Closes a run: the steps with their times, then, alone on the last line, how many tests passed and failed.

usage: totals.py RESULTS, the folder that scripts/steps.sh fills; of a step that ran twice the last run counts. A step that failed without a failed test
to show for it (a build, a sanitizer's log, lint) counts as one failure. Exits 1 where anything failed."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_tests(report):
    """(passed, failed, skipped) of one JUnit file, as ctest and pytest write them."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("disabled", "notrun"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    results = pathlib.Path(sys.argv[1])
    passed = failed = skipped = 0
    for report in sorted(results.glob("*.xml")):
        counts = count_tests(report)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]

    lines = (results / "steps.tsv").read_text().splitlines() if (results / "steps.tsv").exists() else []
    steps = {title: (status, seconds) for title, status, seconds in (line.split("\t") for line in lines)}
    print()
    for title, (status, seconds) in steps.items():
        print(f"{seconds:>5} s  {'ok' if status == '0' else 'FAILED':6}  {title}")
    failed = max(failed, sum(status != "0" for status, _ in steps.values()))

    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
