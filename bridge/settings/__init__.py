"""Settings: one file, checked against one model; every problem is reported at once before anything is
opened.
"""

from bridge.settings.addresses import AddressSettings
from bridge.settings.load import SettingsFile, load
from bridge.settings.model import Settings
from bridge.settings.problems import Problem, SettingsInvalid

__all__ = ["AddressSettings", "Problem", "Settings", "SettingsFile", "SettingsInvalid", "load"]
