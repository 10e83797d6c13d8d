"""Time of integer expressions, in microseconds, median over fresh symbols (so that no interned result is found).

python benchmarks/bench_integers.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from fuser.ir.integers.integers import Int, Symbol, ceil_div, compile_function, less, minimum, prove_less, symbol

REPEATS = 2000


def measure(prepare: Callable[[int], tuple[Symbol, ...]], work: Callable[..., object]) -> float:
    """Median microseconds of `work` on the symbols that `prepare` makes anew for every repeat."""
    times: list[float] = []
    for index in range(REPEATS):
        symbols = prepare(index)
        start = time.perf_counter()
        work(*symbols)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def tile(index: int) -> tuple[Symbol, ...]:
    return symbol(f"i{index}"), symbol(f"j{index}", hi=127)


def cancel_pair(i: Int, j: Int) -> Int:
    return (128 * i + j) // 128 * 128 + (128 * i + j) % 128


def divide_tile(i: Int, j: Int) -> Int:
    return (128 * i + j) // 128


def one_index(index: int) -> tuple[Symbol, ...]:
    return (symbol(f"x{index}", hi=1 << 30),)


def split_chain(x: Int) -> Int:
    """Four constant axes taken apart and put together again."""
    digits = x % 32, x // 32 % 64, x // 2048 % 16, x // 32768
    return ((digits[3] * 16 + digits[2]) * 64 + digits[1]) * 32 + digits[0]


def tensor(index: int) -> tuple[Symbol, ...]:
    sizes = [symbol(f"{name}{index}", 1) for name in "IJK"]
    return *sizes, *(symbol(f"{s.name}_index", below=s) for s in sizes)


def symbolic_axes(_: Int, big_j: Int, big_k: Int, i: Int, j: Int, k: Int) -> tuple[Int, ...]:
    flat = (i * big_j + j) * big_k + k
    return flat // (big_j * big_k), flat // big_k % big_j, flat % big_k


def symbolic_bound(big_i: Int, big_j: Int, big_k: Int, i: Int, j: Int, k: Int) -> bool:
    return prove_less((i * big_j + j) * big_k + k, big_i * big_j * big_k)


def sizes(index: int) -> tuple[Symbol, ...]:
    size = symbol(f"N{index}", 1)
    return size, symbol(f"tile{index}", below=ceil_div(size, 1024)), symbol(f"lane{index}", hi=255)


def open_predicate(size: Int, block: Int, lane: Int) -> object:
    """The predicate of a last tile that may stick out: nothing to prove."""
    return less(block * 1024 + lane * 4 + 3, size)


def launch_plan(size: Symbol, block: Symbol, lane: Symbol) -> object:
    del block, lane
    grid = minimum(ceil_div(size, 1024), 1056)
    return compile_function([grid, ceil_div(size, grid * 4), size % 1024], [size])


def main() -> None:
    cases: list[tuple[str, Callable[[int], tuple[Symbol, ...]], Callable[..., object]]] = [
        ("(128*i + j)//128*128 + (128*i + j)%128 -> 128*i + j", tile, cancel_pair),
        ("(128*i + j)//128 -> i", tile, divide_tile),
        ("four-digit div/mod chain and back -> x", one_index, split_chain),
        ("((i*J + j)*K + k) taken apart -> i, j, k", tensor, symbolic_axes),
        ("prove (i*J + j)*K + k < I*J*K", tensor, symbolic_bound),
        ("predicate that stays", sizes, open_predicate),
        ("launch plan to a Python function", sizes, launch_plan),
    ]
    for title, prepare, work in cases:
        print(f"{measure(prepare, work):8.1f} us  {title}")
    size = symbol("N", 1)
    plan = compile_function([ceil_div(size, 1024), size % 1024], [size])
    start = time.perf_counter()
    for value in range(100_000):
        plan(value)
    print(f"{(time.perf_counter() - start) * 10:8.2f} us  one evaluation of a launch plan")


if __name__ == "__main__":
    main()
