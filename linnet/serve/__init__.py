"""Serve a language model over HTTP: the OpenAI API, and sessions that cost kilobytes.

    linnet serve runs/text                     the command (cli/serve.py)
    HTTP (app.py) -> requests (api_*.py) -> Worker (worker.py): one thread that owns Scheduler, sessions and store

The asyncio side parses, tokenizes and writes answers; the worker thread alone touches the engine, the sessions
(sessions.py) and the store (store.py). They exchange calls and lists of events, so nothing here needs a lock.
"""
