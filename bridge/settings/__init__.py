"""Settings: one file, held against one model, with every problem told at once before anything is opened."""

from bridge.settings.addresses import AddressSettings
from bridge.settings.load import SettingsFile, load
from bridge.settings.model import Settings
from bridge.settings.problems import Problem, SettingsInvalid

__all__ = ["AddressSettings", "Problem", "Settings", "SettingsFile", "SettingsInvalid", "load"]
