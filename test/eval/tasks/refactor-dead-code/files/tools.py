"""What jobs can do."""
import math

ALIASES = {"biggest": "largest"}


def largest(numbers):
    return max(numbers)


def smallest(numbers):
    return min(numbers)


def mean(numbers):
    return total(numbers) / len(numbers)


def total(numbers):
    return math.fsum(numbers)


def product(numbers):
    return math.prod(numbers)


def spread(numbers):
    return largest(numbers) - smallest(numbers)


def middle(numbers):
    ordered = in_order(numbers)
    return ordered[len(ordered) // 2]


def in_order(numbers):
    return sorted(numbers)


def job_report(numbers):
    return f"{len(numbers)} numbers, mean {mean(numbers):.1f}"
