"""The message of an exception, read from the expression that makes it: a template with {placeholders}."""

import ast
import re
import string

_PERCENT = re.compile(r"%(?:\((?P<name>\w+)\))?[-#0 +]*\d*(?:\.\d+)?(?P<kind>[diouxXeEfFgGcrsa%])")
Names = dict[str, str]  # what is known of local variables: their templates


def template(expression: ast.expr, names: Names) -> str:
    """Return the text that an expression makes, with a placeholder for each part that only the run knows."""
    match expression:
        case ast.Constant(value=str(text)):
            return _literal(text)
        case ast.JoinedStr(values=values):
            return "".join(template(value, names) for value in values)
        case ast.FormattedValue(value=value):
            # A part that is itself a known text: f"{prefix} is ..."
            return names.get(value.id, _placeholder(value)) if isinstance(value, ast.Name) else _placeholder(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left, names) + template(right, names)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _percent(template(left, names), right)
        case ast.Call(func=ast.Attribute(value=value, attr="format"), args=args, keywords=keywords):
            return _format(template(value, names), args, keywords)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(_)) as value, attr="strip" | "lstrip" | "rstrip")
        ):
            return template(value, names).strip()
        case ast.Call(func=ast.Attribute(attr="dedent"), args=[argument]):
            return template(argument, names)
        case ast.Name(id=name) if name in names:
            return names[name]
    return _placeholder(expression)


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _placeholder(expression: ast.expr) -> str:
    """Name a placeholder after what it stands for, if that has a name."""
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_') or 'value'}}}"
        case ast.Call(args=[ast.Name() | ast.Attribute() as argument]):
            return _placeholder(argument)
    return "{value}"


def _percent(text: str, right: ast.expr) -> str:
    values = right.elts if isinstance(right, ast.Tuple) else [right]
    rest = iter(values)

    def replace(match: re.Match[str]) -> str:
        if match["kind"] == "%":
            return "%"
        if match["name"]:
            return f"{{{match['name']}}}"
        value = next(rest, None)
        return _placeholder(value) if value is not None else "{value}"

    return _PERCENT.sub(replace, text)


def _format(text: str, args: list[ast.expr], keywords: list[ast.keyword]) -> str:
    """Fill in str.format: what is a literal here was escaped once, so its own fields are between double braces."""
    fields = text.replace("{{", "{").replace("}}", "}")
    named = {keyword.arg: keyword.value for keyword in keywords}
    parts, count = [], 0
    try:
        for literal, field, _, _ in string.Formatter().parse(fields):
            parts.append(_literal(literal))
            if field is None:
                continue
            first = re.split(r"[.\[]", field, maxsplit=1)[0]
            index = count if first == "" else int(first) if first.isdecimal() else None
            count += first == ""
            if index is not None and index < len(args):
                parts.append(_placeholder(args[index]))
            else:
                parts.append(_placeholder(named[first]) if first in named else "{value}")
    except ValueError:  # no format after all
        return text
    return "".join(parts)
