"""Several servers that start and end together."""
import concurrent.futures

from .server import Closing, ServerError


class Together(Closing):
    def __init__(self, servers):
        self.servers = servers

    def start(self):
        # Threads: the slowest start decides, and a signal, which only the
        # main thread gets, never comes between a fork and its bookkeeping.
        with concurrent.futures.ThreadPoolExecutor(len(self.servers)) as pool:
            starts = [pool.submit(server.start) for server in self.servers]
            try:
                for start in concurrent.futures.as_completed(starts):
                    start.result()
            except BaseException:
                for server in self.servers:
                    server.cancelled.set()
                raise
        return self

    def close(self):
        """All of them, whatever happens to one."""
        wrong = []
        for server in reversed(self.servers):
            try:
                server.close()
            except ServerError as error:
                wrong.append(str(error))
        if wrong:
            raise ServerError("\n".join(wrong))
