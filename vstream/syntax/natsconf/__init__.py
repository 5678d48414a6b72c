"""
The NATS configuration language, read as nats-server reads it, with a place for everything.

`parse` accepts what `nats-server -t` can parse and refuses what it cannot. The two are compared on
generated and mutated files: acceptance, values and lines agree with server 2.15.1. What only looks
wrong, or what older servers refuse, is a warning. The language has its traps, and the tree shows what the server makes of them:

- `[1]` is not closed: digits take in the character that ends them, even a bracket. `[1 ]` is, and `[1k]`.
- `1k` is 1000, and `1kb`, `1ki` and `1kib` are 1024; `1kbb` is dropped, and sizes wrap around at 64 bits.
- In `x { a }` the map is the value of `a`, and `x` is lost: a key without a value takes the next one.
- A variable is looked up in the maps around it, as far as they were read, then in the environment. An
  included file does not see the variables of the file that includes it. `$2a$…` is a bcrypt hash.
- A block `( … )` ends with a bracket alone on its line; if that is the end of the file, the bracket
  belongs to the value. With CRLF such a block ends nowhere else.
- A NUL byte separates top-level entries, and ends what is read after a key.

Known differences, all on purpose:

- More than 200 levels of maps, arrays or braces are an error (VS010, or VS012 where a variable adds
  them): programs that walk the tree may recurse. The server takes about 10,000.
- Files that include one another without end, more than 32 levels of files and environment variables, or
  more than 1000 includes in all are VS011 or VS012; the server runs out of memory instead, or takes them.
- Decimal digits outside ASCII that are younger than Python's Unicode tables are letters here. The
  server refuses numbers of such digits, and here they are words.
- In values, escapes that are not UTF-8 become U+FFFD; the server keeps the bytes.
"""

from vstream.syntax.natsconf.nodes import ConfMap, to_python
from vstream.syntax.natsconf.parser import parse

__all__ = ["ConfMap", "parse", "to_python"]
