"""The language of rules: a condition as text, checked in full when it is made, and evaluated by simpleeval.

An expression is Python's, and a small part of it: literals, ``output`` and ``variables``, their fields and items,
comparisons, arithmetic, ``and``/``or``/``not``, ``x if c else y``, comprehensions, and calls of a few functions and of
a few methods of plain values. Whatever else it holds is refused before it is ever evaluated; so is one whose constant
parts fail, such as a power that nobody could wait for.

What is evaluated is not quite what was written. A field ``x.name`` has become a call of ``_field(x, "name")`` and a
method that of ``_method(x, "name", ...)``, because what they may reach depends on what ``x`` is by then: a field of a
mapping is its item, and no field is ever anything that can be called; a method is looked up on the plain type that
``x`` is, so it is never code of a value's own class. What a comprehension makes has become ``_element(...)``, which
looks at its size.

This is the one module that imports simpleeval, and only when an expression is made.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache
from types import CodeType, CoroutineType, FrameType, GeneratorType, MappingProxyType, ModuleType, TracebackType
from typing import Any, Final

#: What a condition is given: the output of the branch point, and the variables.
Condition = Callable[[Any, Mapping[str, Any]], object]

#: Characters of an expression.
_LONGEST: Final = 1_000
#: How deep its parts may be nested.
_DEEPEST: Final = 40
#: Bits of a number that it may compute.
_BITS: Final = 10_000
#: The highest exponent.
_POWER: Final = 1_000
#: Items, or characters, of what it may add together.
_ITEMS: Final = 100_000
#: Items, or characters, of an element that a comprehension may make.
_ELEMENT: Final = 1_000
#: Digits to which a number may be rounded.
_DIGITS: Final = 100
#: What is no value, but part of a program.
_INSIDES: Final = (ModuleType, FrameType, CodeType, TracebackType, GeneratorType, CoroutineType)


class ExpressionError(ValueError):
    """A text that is no expression, or one that reaches for what it may not."""


class LimitError(ValueError):
    """An evaluation would compute something far larger than a condition needs."""


def _rounded(number: Any, digits: Any = None, /) -> Any:
    if digits is not None and abs(digits) > _DIGITS:
        raise LimitError(f"over {_DIGITS} digits")
    return round(number, digits)


def _text(value: Any, /) -> str:
    if hasattr(value, "__len__") and not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} is not written out")
    return str(value)


def _total(numbers: Any, /) -> Any:
    return sum(numbers)


_NAMES: Final = frozenset({"output", "variables"})
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        **{f.__name__: f for f in (abs, all, any, bool, float, int, len, max, min)},
        "round": _rounded,
        "sorted": sorted,
        "str": _text,
        "sum": _total,
    }
)
#: By function. None of them can be handed code to call.
_KEYWORDS: Final = {"max": {"default"}, "min": {"default"}, "sorted": {"reverse"}}
#: By the type that has them. None of them changes anything, or can make much of little.
_METHODS: Final[Mapping[type, frozenset[str]]] = MappingProxyType(
    {
        str: frozenset(
            {"casefold", "count", "endswith", "find", "isalnum", "isalpha", "isdecimal", "isdigit", "islower"}
            | {"isspace", "isupper", "lower", "removeprefix", "removesuffix", "split", "startswith", "strip", "upper"}
        ),
        dict: frozenset({"get", "items", "keys", "values"}),
        MappingProxyType: frozenset({"get", "items", "keys", "values"}),
        list: frozenset({"count", "index"}),
        tuple: frozenset({"count", "index"}),
        set: frozenset({"isdisjoint", "issubset", "issuperset"}),
        frozenset: frozenset({"isdisjoint", "issubset", "issuperset"}),
    }
)
_METHOD_NAMES: Final = frozenset[str]().union(*_METHODS.values())

_PLAIN_NODES: Final = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
    ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.IfExp, ast.Subscript, ast.Slice, ast.List, ast.Tuple, ast.Set, ast.Dict,
    ast.ListComp, ast.GeneratorExp, ast.keyword, ast.Load, ast.Store,
)  # fmt: skip
_WORDS: Final = {ast.Lambda: "a lambda", ast.NamedExpr: "an assignment", ast.JoinedStr: "a format string"}


def compiled(text: str) -> Condition:
    """Make a condition of an expression.

    Args:
        text: One expression over ``output`` and ``variables``.

    Returns:
        A function of both. It may be called by any thread; it raises whatever goes wrong in the evaluation.

    Raises:
        ExpressionError: the text does not parse, or reaches for what it may not.
        ModuleNotFoundError: simpleeval is not installed.
    """
    evaluator = _evaluator()
    tree = _parsed(text)
    _check(tree)
    body = ast.fix_missing_locations(_Guarding().visit(tree)).body
    for part in _constant_parts(body):
        try:
            evaluator({}).eval(text, previously_parsed=part)
        except Exception as error:
            raise ExpressionError(f"{ast.unparse(part)} fails whatever it is given: {error}") from error
    return lambda output, variables: evaluator({"output": output, "variables": variables}).eval(
        text, previously_parsed=body
    )


# --- before it is evaluated -----------------------------------------------------------------------------------------


def _parsed(text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        raise ExpressionError(f"it is over {_LONGEST} characters long; give a callable instead")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", None) or str(error) or "it is nested too deep"
        raise ExpressionError(f"it does not parse: {why}") from error
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ExpressionError("it is nested too deep; give a callable instead")
    return tree


def _check(tree: ast.Expression) -> None:
    nodes = list(ast.walk(tree))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    taken = sorted(own & (_NAMES | _FUNCTIONS.keys()))
    if taken:
        raise ExpressionError(f"it gives {taken[0]!r} another meaning")
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        match node:
            case ast.Call():
                _check_call(node)
            case ast.Attribute(ctx=ast.Load()) if id(node) not in called:
                _check_field(node.attr)
            case ast.Name() if id(node) not in called and node.id not in _NAMES | own:
                raise ExpressionError(f"there is no {node.id!r}; there are 'output' and 'variables'")
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() | float() as power)) if power > _POWER:
                raise ExpressionError(f"the power {power} is too high; {_POWER} is the highest")
            case _:
                _check_kind(node)


def _check_kind(node: ast.AST) -> None:
    match node:
        case ast.Constant(value=value):
            if value is not None and type(value) not in (bool, int, float, str):
                raise ExpressionError(f"{value!r} is no text, number, True, False or None")
        case ast.comprehension(is_async=is_async):
            if is_async:
                raise ExpressionError("it is async, which nobody would run")
        case ast.Dict(keys=keys) if None in keys:
            raise ExpressionError("** is not permitted in it")
        case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
            raise ExpressionError("an assignment is not permitted in it")
        case ast.Attribute() | ast.Name():
            return  # looked at where they are used
        case _ if not isinstance(node, _PLAIN_NODES):
            kind = type(node)
            raise ExpressionError(f"{_WORDS.get(kind, kind.__name__)} is not permitted in it")


def _check_field(name: str) -> None:
    if name.startswith("_"):
        raise ExpressionError(f"{name!r} is private")


def _check_call(call: ast.Call) -> None:
    names = {keyword.arg for keyword in call.keywords}
    match call.func:
        case ast.Name(id=name):
            if name not in _FUNCTIONS:
                raise ExpressionError(f"it may not call {name!r}; it may call {', '.join(_FUNCTIONS)}")
            permitted: set[str] = _KEYWORDS.get(name, set())
        case ast.Attribute(attr=name):
            _check_field(name)
            if name not in _METHOD_NAMES:
                raise ExpressionError(f"it may not call {name!r} of a value")
            permitted = set()
        case _:
            raise ExpressionError(f"it may not call {ast.unparse(call.func)}")
    if not names <= permitted:
        raise ExpressionError(f"{name!r} may not be given {', '.join(sorted(str(n) for n in names - permitted))}")


class _Guarding(ast.NodeTransformer):
    """Puts what looks at a value before it is reached into."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._call("_field", node, [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        return self._call("_method", node.func, node.args) if isinstance(node.func, ast.Attribute) else node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> ast.AST:
        """All elements are kept until the last is there: those that are made anew must be small."""
        is_made = not _is_reference(node.elt)
        self.generic_visit(node)
        if is_made:
            node.elt = ast.Call(ast.Name("_element", ast.Load()), [node.elt], [])
        return node

    def _call(self, guard: str, reached: ast.Attribute, args: list[ast.expr]) -> ast.Call:
        name = ast.Name(guard, ast.Load())
        return ast.Call(name, [self.visit(reached.value), ast.Constant(reached.attr), *args], [])


def _is_reference(node: ast.expr) -> bool:
    """Whether it finds a value that is there, and makes none."""
    while isinstance(node, ast.Attribute) or (
        isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice)
    ):
        node = node.value
    return isinstance(node, ast.Name | ast.Constant)


def _constant_parts(node: ast.AST) -> Iterator[ast.expr]:
    """The largest parts that do not depend on what the expression is given."""
    names = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
    if isinstance(node, ast.expr) and not isinstance(node, ast.Slice | ast.Name) and all(n in _GUARDED for n in names):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _constant_parts(child)


# --- while it is evaluated --------------------------------------------------------------------------------------------


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value[name]
    found = None if isinstance(value, _INSIDES) else getattr(value, name)
    if isinstance(value, _INSIDES) or isinstance(found, _INSIDES) or callable(found):
        raise TypeError(f"{name!r} of a {type(value).__name__} is no field of a value")
    return found


def _element(value: Any) -> Any:
    if hasattr(value, "__len__") and len(value) > _ELEMENT:
        raise LimitError(f"an element of over {_ELEMENT} items")
    return value


def _method(value: Any, name: str, *args: Any) -> Any:
    for kind, names in _METHODS.items():
        if isinstance(value, kind) and name in names:
            return getattr(kind, name)(value, *args)
    raise TypeError(f"{name!r} of a {type(value).__name__} may not be called")


_GUARDED: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {**_FUNCTIONS, "_element": _element, "_field": _field, "_method": _method}
)


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(base, int | float) or not isinstance(exponent, int | float):
        raise TypeError(f"a {type(base).__name__} cannot be raised to a {type(exponent).__name__}")
    if isinstance(base, int) and abs(exponent) * base.bit_length() > _BITS:
        raise LimitError(f"a power of over {_BITS} bits")
    return base**exponent


def _product(left: Any, right: Any) -> Any:
    if hasattr(left, "__len__") or hasattr(right, "__len__"):
        raise TypeError("only numbers are multiplied")
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _BITS:
        raise LimitError(f"a product of over {_BITS} bits")
    return left * right


def _sum(left: Any, right: Any) -> Any:
    if hasattr(left, "__len__") and hasattr(right, "__len__") and len(left) + len(right) > _ITEMS:
        raise LimitError(f"a sum of over {_ITEMS} items")
    return left + right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str | bytes | bytearray):
        raise TypeError("% of a text is not permitted")
    return left % right


_OPERATORS: Final[Mapping[type, Callable[..., Any]]] = MappingProxyType(
    {
        ast.Add: _sum,
        ast.Sub: operator.sub,
        ast.Mult: _product,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: _remainder,
        ast.Pow: _power,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.In: lambda item, items: item in items,
        ast.NotIn: lambda item, items: item not in items,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
        ast.Not: operator.not_,
        ast.USub: operator.neg,
        ast.UAdd: operator.pos,
    }
)


@cache
def _evaluator() -> Callable[[dict[str, Any]], Any]:
    """Gives what makes an evaluator with these names. One is for one evaluation: it has state.

    Raises:
        ModuleNotFoundError: simpleeval is not installed.
    """
    from simpleeval import EvalWithCompoundTypes

    class Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]  # it comes without types
        """simpleeval's, without its look through all that a value holds, at each step: what a value holds cannot be
        called here, and may be long, or hold itself."""

        def _check_disallowed_items(self, item: object) -> None:
            """Nothing to look for."""

    model = Evaluator(operators=dict(_OPERATORS), functions=dict(_GUARDED), names={})

    def make(names: dict[str, Any]) -> Any:
        # A copy: making one from scratch changes the filters of warnings, which are the whole process's, and back.
        made = copy(model)
        made.names = names
        made.nodes = {kind: getattr(made, handler.__name__) for kind, handler in model.nodes.items()}
        return made

    return make
