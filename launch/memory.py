"""How a command's process gets its memory: in huge pages, where Linux and glibc have them.

XLA:CPU asks for a program's scratch memory each time it runs, and gives it back after. In pages of
4 KB, getting them takes a tenth to a third of an update of the models here. glibc reads how it
shall ask when a process starts, so a command starts itself again, once, before it has loaded much.
"""

import os
import sys

VARIABLE = "GLIBC_TUNABLES"
HUGE_PAGES = "glibc.malloc.hugetlb=1"  # by madvise; what glibc is too old for, it ignores


def restart_in_huge_pages() -> None:
  """Starts this process again; returns where that is done, of no use, or where the user chose."""
  if sys.platform != "linux" or VARIABLE in os.environ:
    return
  os.environ[VARIABLE] = HUGE_PAGES
  os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
