"""The tests of Weir, which mirror its packages."""

import os

# Nothing merges by itself while a test looks, but where one asks for it; nor in processes that tests start.
os.environ["WEIR_MAINTENANCE"] = "off"
