import pytest

from nsysacct.counting import Counted, prove


def gemv(instances: int, name: str = "gemv") -> Counted:
    return Counted(name, instances, 0)


def gdn(instances: int, i: int = 0) -> Counted:
    return Counted(f"gdn{i}", instances, 0, kind="gdn")


HYBRID = [gemv(8064), gemv(2730), *(gdn(2016, i) for i in range(6))]


@pytest.mark.parametrize("layers", [{"all": 64}, {}, {"all": 64, "gdn": 48}, {"gdn": 48}])
def test_hybrid_model_is_42_rounds_with_the_head_found(layers: dict[str, int]) -> None:
    proof = prove(HYBRID, layers, observed=42)
    assert proof.whole
    assert proof.rounds == 42
    assert proof.layers == {"all": 64, "gdn": 48}
    head = next(s for s in proof.signatures if s.instances == 2730)
    assert (head.per_layer, head.per_round) == (1, 1)


def test_counts_alone_prove_it_without_a_witness() -> None:
    assert prove(HYBRID, {}).rounds == 42


def test_the_witness_decides_between_numbers_that_all_divide() -> None:
    # 24, 9 and 6 a round also divide by 3: thirty "rounds" of 8, 3, 2 look whole by themselves
    counted = [gemv(240), gemv(90), gdn(60)]
    assert prove(counted, {}, observed=10).rounds == 10
    assert prove(counted, {"all": 8}).rounds == 10


def test_wrong_layers_are_not_rounded_away_and_the_right_ones_named() -> None:
    proof = prove(HYBRID, {"all": 63}, observed=42)
    assert proof.rounds is None
    assert not proof.whole
    assert "64 layers and 42 rounds" in proof.reasons[-1]
    assert any(s.verdict == "not whole" for s in proof.signatures)


def test_a_remainder_is_shown() -> None:
    proof = prove([gemv(8064), gemv(2731)], {"all": 64}, observed=42)
    assert not proof.whole
    odd = next(s for s in proof.signatures if s.instances == 2731)
    assert odd.detail == "2731 = 65 x 42 + 1"


def test_declared_structure_is_binding() -> None:
    proof = prove([Counted("k", 100, 0, per_layer=2, per_round=0)], {"all": 5}, observed=10)
    assert proof.rounds == 10
    assert not prove(
        [Counted("k", 105, 0, per_layer=2, per_round=0)], {"all": 5}, observed=10
    ).whole


def test_nothing_counted_proves_nothing() -> None:
    proof = prove([], {"all": 64}, observed=7)
    assert proof.signatures == []
    assert proof.rounds == 7
