import sys

from strategy import best_trade

day = sys.argv[1]
print(day, best_trade(day))
