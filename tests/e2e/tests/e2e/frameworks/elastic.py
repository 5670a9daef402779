"""A coordinator gives numbered pieces of work to as many workers as there are, and takes back what a lost one had."""
import os, signal, socket, sys, threading, time

PORT = 5000
STAGES = [2, 4, 1, 3]  # workers that have to be seen, one after the other
PIECES = 12  # done with so many workers before the next stage


def work(piece):
    return sum(number * piece for number in range(200_000))


class Coordinator:
    def __init__(self):
        self.changed = threading.Condition()
        self.workers, self.joined = set(), 0
        self.next, self.returned, self.out = 0, [], 0
        self.done, self.again = {}, 0
        self.stage, self.in_stage = 0, 0

    def finished(self):
        return self.stage == len(STAGES)

    def take(self):
        with self.changed:
            while self.finished() and not self.returned and self.out:
                self.changed.wait()  # what is out may come back
            if self.finished() and not self.returned:
                return None
            if self.returned:
                piece = self.returned.pop()
            else:
                piece, self.next = self.next, self.next + 1
            self.out += 1
            return piece

    def give_back(self, piece):
        with self.changed:
            self.returned.append(piece)
            self.out -= 1
            self.again += 1
            self.changed.notify_all()

    def complete(self, piece, name):
        with self.changed:
            self.done.setdefault(piece, []).append(name)
            self.out -= 1
            if not self.finished() and len(self.workers) == STAGES[self.stage]:
                self.in_stage += 1
                if self.in_stage == PIECES:
                    print("enough done by", STAGES[self.stage], "workers", flush=True)
                    self.stage, self.in_stage = self.stage + 1, 0
            self.changed.notify_all()

    def serve(self, connection):
        stream = connection.makefile("rw")
        name = stream.readline().strip()
        with self.changed:
            self.workers.add(name)
            self.joined += 1
        piece = None
        try:
            while (piece := self.take()) is not None:
                stream.write(f"{piece}\n")
                stream.flush()
                answer = stream.readline()
                if not answer:
                    raise ConnectionError("it left")
                assert int(answer) == work(piece), (name, piece, answer)
                self.complete(piece, name)
                piece = None
        except OSError:
            self.give_back(piece)
        with self.changed:
            self.workers.discard(name)
            self.changed.notify_all()
        connection.close()

    def run(self):
        server = socket.create_server((socket.gethostbyname(socket.gethostname()), PORT), backlog=16)

        def accept():
            while True:
                connection = server.accept()[0]
                connection.settimeout(30)
                threading.Thread(target=self.serve, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        with self.changed:
            self.changed.wait_for(lambda: self.finished() and not self.workers)
        assert sorted(self.done) == list(range(self.next)), "nothing was left out"
        assert all(len(names) == 1 for names in self.done.values()), "nothing was done twice"
        print(f"all {self.next} pieces done once, {self.again} given again, {self.joined} workers joined", flush=True)


def follow(host):
    # As any program: it goes when it is told to, whatever it has in hand.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    while True:
        try:
            stream = socket.create_connection((host, PORT), timeout=30).makefile("rw")
            break
        except OSError:
            time.sleep(0.05)
    stream.write(f"{socket.gethostname()}\n")
    stream.flush()
    for piece in stream:
        stream.write(f"{work(int(piece))}\n")
        stream.flush()


if len(sys.argv) > 1:
    follow(sys.argv[1])
else:
    Coordinator().run()
