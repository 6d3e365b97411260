#!/bin/sh
# The batch script of a satellite: a further node of an elastic job. Its arguments are the command.
exec "$@"
