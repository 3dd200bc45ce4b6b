"""The ops of a pipeline as functions: ops.random_resized_crop(224, scale=(0.5, 1)).

They are made from the server's own table of ops, so a name or a parameter that it doesn't know is refused here, and what an op takes is
in its help(). A pipeline takes plain names and dicts just as well:

    ["decode", {"random_resized_crop": 224}, ops.random_horizontal_flip(p=0.25), ops.to(dtype="f16")]
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from forebay.names import did_you_mean

_table: Dict[str, Dict[str, Any]] = {}


def _ops() -> Dict[str, Dict[str, Any]]:
    if not _table:
        from forebay import _forebay_plan

        _table.update({op["name"]: op for op in _forebay_plan.ops()})
    return _table


def _make(name: str) -> Callable[..., Dict[str, Any]]:
    op = _ops()[name]
    params = {param["name"]: param for param in op["params"]}
    lone: Optional[str] = op["shorthand"]  # the parameter that a lone value stands for
    presets: List[str] = op["presets"]  # what a lone value may be besides

    def use(*args: Any, **kwargs: Any) -> Dict[str, Any]:
        for key in kwargs:
            if key not in params:
                raise TypeError(f"ops.{name} takes no {key!r}: expected {', '.join(params) or 'nothing'}{did_you_mean(key, params)}")
        if not args:
            return {name: kwargs}
        if len(args) == 1 and (args[0] in presets if isinstance(args[0], str) else lone) and not kwargs:
            return {name: args[0]}
        if len(args) == 1 and lone and lone not in kwargs:
            return {name: {lone: args[0], **kwargs}}
        expected = [f"one value, {lone}"] if lone else []
        expected += [f"{preset!r}" for preset in presets]
        raise TypeError(f"ops.{name}: {', '.join(map(repr, args))} can't stand here: expected "
                        f"{', or '.join(expected) or 'no lone value'}; {'others by name: ' if expected else 'name them: '}"
                        f"{', '.join(params) or 'it takes none'}")

    use.__name__ = use.__qualname__ = name
    lines = [op["about"], ""]
    for param in params.values():
        default = "required" if param["default"] is None else f"default {param['default']}"
        lines.append(f"{param['name']}: {param['about']} ({default})")
    if presets:
        lines.append(f"Or a preset: {', '.join(map(repr, presets))}.")
    use.__doc__ = "\n".join(lines)
    return use


def __getattr__(name: str) -> Any:
    if name == "__all__":  # of what help() shows
        return sorted(_ops())
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in _ops():
        raise AttributeError(f"there is no op {name!r}: expected {', '.join(sorted(_ops()))}{did_you_mean(name, _ops())}")
    function = _make(name)
    globals()[name] = function
    return function


def __dir__() -> List[str]:
    return sorted(_ops())
