"""The executor of this process: what every part of the program that works in parts relies on."""

from visterm.core.executor import LOCAL, Executor, for_parts


class Squares:
    """Squares numbers, a step of progress each."""

    def begin(self, team, progress):
        def work(part):
            progress.advance(self.size_of(part))
            return part * part

        return work

    def name_of(self, part):
        return str(part)

    def size_of(self, part):
        return 1


class Counting:
    def __init__(self):
        self.steps = 0

    def start(self, task, total=None):
        raise AssertionError("the caller begins and ends the task")

    finish = start

    def advance(self, steps=1, note=""):
        self.steps += steps


def test_results_come_in_the_order_of_the_parts_and_steps_are_counted():
    progress = Counting()
    assert list(Executor(1).run(Squares(), [3, 1, 2], progress)) == [9, 1, 4]
    assert progress.steps == 3


def test_a_part_is_done_when_its_result_is_requested():
    progress = Counting()
    results = Executor(2).run(Squares(), [3, 1], progress)
    assert (next(results), progress.steps) == (9, 1)


def test_results_can_be_taken_as_they_end():
    found = {}
    LOCAL.run_as_done(Squares(), [3, 1], found.__setitem__)
    assert found == {0: 9, 1: 1}


def test_a_single_part_is_never_worth_other_machines():
    elsewhere = Executor(2)
    elsewhere.remote = True
    assert for_parts(elsewhere, [1, 2]) is elsewhere
    alone = for_parts(elsewhere, [1])
    assert (alone.remote, alone.n_jobs) == (False, 2)
    assert not for_parts(LOCAL, [1, 2]).remote
