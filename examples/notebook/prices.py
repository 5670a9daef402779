import random
from datetime import date, timedelta
from pathlib import Path

Path("prices").mkdir()
for day in (date(2024, 1, 1) + timedelta(days) for days in range(31)):
    random.seed(day.toordinal())
    price, lines = 100.0, []
    for _ in range(5000 if day.day == 31 else 390):
        price += random.gauss(0, 0.1)
        lines.append(f"{price:.2f}\n")
    if day.day == 10:
        lines[120] = "n/a\n"
    Path(f"prices/{day}.txt").write_text("".join(lines))
