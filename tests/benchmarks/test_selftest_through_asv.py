from benchmarks.selftest_through_asv import verdicts_in

PRINTED = """
| Change   | Before [6b6a5b85] <main~1>   | After [7400dad1] <main>   |   Ratio | Benchmark (Parameter) |
|----------|------------------------------|---------------------------|---------|-----------------------|
| +        | 2.50±0.01ms                  | 2.62±0.01ms               |    1.05 | families.selftest.time_plan('slower-5', 'copies/dgx_a100_80gb:1') |
| -        | 2.94±0.5ms                   | 2.56±0.2ms                |    0.87 | families.selftest.time_plan('identical', 'copies/dgx_a100_80gb:1') |
| +        | 2.94±0.5ms                   | 3.56±0.2ms                |    1.21 | families.selftest.time_plan('reference', 'copies/dgx_a100_80gb:1') |

SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY.
"""  # noqa: E501


def test_what_asv_lists_has_changed_and_the_rest_has_not() -> None:
    assert verdicts_in(PRINTED) == {
        "identical": "faster",
        "slower-2": "not changed",
        "slower-5": "slower",
        "slower-10": "not changed",
    }
    nothing = "\nBENCHMARKS NOT SIGNIFICANTLY CHANGED.\n"
    assert set(verdicts_in(nothing).values()) == {"not changed"}
