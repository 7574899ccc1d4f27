"""The codec: which values may cross a boundary, and how they come back.

This package knows how a value becomes one line of ASCII JSON and that line the same value again: same type, same
content, whichever process reads it. It refuses to know where the line is kept and who asked. It never pickles,
imports or evaluates what it reads: a class is made again only if the program named it, to `register` or to a `Codec`.

Values that JSON has are written as themselves. Every other value is taken apart into *parts*, which are values again,
and written as a *tag*, an object whose only key starts with a dollar sign::

    (1, b"x")             {"$tuple":[1,{"$bytes":["eA=="]}]}
    {1: "a", "1": "b"}    {"$dict":[1,"a","1","b"]}
    Finding(line=3)       {"$object":["app.models:Finding","line",3]}
    Color.RED             {"$enum":["app.models:Color","RED"]}

A user's own dict that looks like a tag is written as a ``$dict``. A *form* says how the values of one class are taken
apart and made again, so another type is another form, in ``_natives`` for every program or in ``_classes`` for one.
Types are compared exactly: a subclass of ``dict`` or ``int`` has a form of its own or is refused, and is never taken
for its base. An object that is referred to twice comes back as two equal ones.
"""

from ares.values._annotations import types_in
from ares.values._classes import register
from ares.values._codec import MAX_DEPTH, Codec
from ares.values._natives import prepare

__all__ = ["MAX_DEPTH", "Codec", "prepare", "register", "types_in"]
