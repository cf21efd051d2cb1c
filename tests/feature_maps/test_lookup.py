"""resolve and build: names, objects and None, and one clear sentence for everything else."""

from __future__ import annotations

import inspect

import pytest
import torch

from linnet import feature_maps as fm


def test_none_means_already_mapped() -> None:
    assert isinstance(fm.resolve(None, 64), fm.Identity)


@pytest.mark.parametrize("name", fm.PARAMETER_FREE)
def test_a_name_is_built_once_per_width(name: str) -> None:
    feature_map = fm.resolve(name, 8)
    assert type(feature_map) is fm.FEATURE_MAPS[name]
    assert feature_map.head_dim == 8
    assert fm.resolve(name, 8) is feature_map
    assert fm.resolve(name, 9).head_dim == 9
    assert not feature_map.state_dict()


@pytest.mark.parametrize("name", [n for n in fm.FEATURE_MAPS if n not in fm.PARAMETER_FREE])
def test_a_map_with_parameters_or_draws_must_be_built_by_the_caller(name: str) -> None:
    assert fm.build(name, 16, 4).state_dict()
    sentence = rf"{name!r} has parameters.*build it once, linnet\.feature_maps\.\w+\(head_dim=16.*pass the object"
    with pytest.raises(ValueError, match=sentence):
        fm.resolve(name, 16)


def test_an_object_is_returned_if_its_width_matches() -> None:
    feature_map = fm.ReBased(16, 4)
    assert fm.resolve(feature_map, 16) is feature_map
    with pytest.raises(ValueError, match=r"built for head_dim 16 but q and k have width 8; build it with ReBased"):
        fm.resolve(feature_map, 8)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"'relu3'; did you mean 'relu2?'.*Accepted: identity, elu"):
        fm.resolve("relu3", 8)
    with pytest.raises(ValueError, match=r"'rebasd'; did you mean 'rebased'"):
        fm.build("rebasd", 8)


@pytest.mark.parametrize("wrong", [3, torch.relu, fm.Elu])
def test_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be a name, a FeatureMap object or None"):
        fm.resolve(wrong, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("head_dim", [0, -1])
def test_bad_width(head_dim: int) -> None:
    with pytest.raises(ValueError, match="head_dim"):
        fm.resolve("elu", head_dim)


@pytest.mark.parametrize("name", fm.FEATURE_MAPS)
def test_build_passes_head_dim_and_n_heads(name: str) -> None:
    feature_map = fm.build(name, 6, 3)
    assert feature_map.map_q(torch.ones(2, 3, 6)).shape == (2, 3, feature_map.feature_dim)
    parameters = list(inspect.signature(type(feature_map)).parameters.values())
    assert parameters[0].name == "head_dim"
    rest = [p for p in parameters[1:] if p.name != "n_heads"]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in rest)


def test_build_passes_options() -> None:
    built = fm.build("rebased", 6, 3, norm_scope="per_head")
    assert isinstance(built, fm.ReBased)
    assert (built.n_heads, built.norm_scope) == (3, "per_head")
    assert fm.build("polynomial", 6, degree=3).feature_dim == 56


def test_build_refuses_unknown_options() -> None:
    with pytest.raises(ValueError, match=r"option of feature_map 'polynomial': 'degre'; did you mean 'degree'"):
        fm.build("polynomial", 6, degre=3)
    with pytest.raises(ValueError, match=r"'feature_dim'"):
        fm.build("elu", 6, feature_dim=3)


def test_every_map_names_its_paper() -> None:
    for cls in set(fm.FEATURE_MAPS.values()):
        text = inspect.getmodule(cls).__doc__ + (cls.__doc__ or "")  # type: ignore[union-attr, operator]
        assert "arXiv:" in text, cls
        assert cls.__doc__ is not fm.FeatureMap.__doc__
