"""The library inside a training job: its workers come and go while it runs."""
