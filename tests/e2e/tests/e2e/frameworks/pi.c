/* The integral of 4 / (1 + x * x) from 0 to 1: always the same number of steps, split over the ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS 1000000000L

int main(int argc, char **argv) {
    int rank, ranks, length;
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(name, &length);

    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), part = 0, pi = 0;
    for (long step = rank; step < STEPS; step += ranks) {
        double x = (step + 0.5) / STEPS;
        part += 4 / (1 + x * x);
    }
    MPI_Reduce(&part, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;

    char *names = rank ? NULL : malloc((size_t)ranks * sizeof name);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (!rank) {
        printf("ranks=%d pi=%.9f seconds=%.3f hosts=", ranks, pi / STEPS, seconds);
        for (int each = 0; each < ranks; each++)
            printf("%s%s", each ? "," : "", names + each * sizeof name);
        printf("\n");
        free(names);
    }
    return MPI_Finalize();
}
