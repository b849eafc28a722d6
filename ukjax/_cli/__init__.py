"""The command line `ukjax`."""
