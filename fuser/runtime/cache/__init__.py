"""Files: what is kept for later processes, and what users name.

disk_cache.py                binaries and programs of earlier processes: many processes read and write at once
user_files.py                files that users name, with errors that say which file and why
atomic_files.py              files that are whole or not there
file_lock.py                 a lock that processes share
"""
