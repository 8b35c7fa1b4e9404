"""The linter: what the text of a program shows about its psend, precv and ppermute. Reads files, runs nothing.

Pure standard library; only fixing needs libcst.
"""

from peerax.lint._file import CannotRead, lint_file, lint_source
from peerax.lint._finding import Finding, Unreadable
from peerax.lint._fix import FixerMissing, fix_source, require_fixer
from peerax.lint._formats import summary, to_github, to_json, to_text
from peerax.lint._rules import RULES, Rule
from peerax.lint._run import Result, lint_paths, python_files
from peerax.lint._sarif import to_sarif
from peerax.lint._settings import DEFAULT_CODES, Settings, SettingsError, read_settings

__all__ = [
    "DEFAULT_CODES",
    "RULES",
    "CannotRead",
    "Finding",
    "FixerMissing",
    "Result",
    "Rule",
    "Settings",
    "SettingsError",
    "Unreadable",
    "fix_source",
    "lint_file",
    "lint_paths",
    "lint_source",
    "python_files",
    "read_settings",
    "require_fixer",
    "summary",
    "to_github",
    "to_json",
    "to_sarif",
    "to_text",
]
