"""`core-bridge migrate`: an Artemis broker.xml in, settings out, and a line for all that they leave out."""
