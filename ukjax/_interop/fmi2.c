/*
 * The functions of FMI 2.0, each by its successor of FMI 3.0 in fmi3.c, for tools that read 2.0 alone.
 *
 * The declarations follow the headers of the FMI standard 2.0.4 (Modelica Association, 2-Clause BSD License).
 */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#define EXPORT static
#include "fmi3.c"

#ifdef _WIN32
#define EXPORT2 __declspec(dllexport)
#else
#define EXPORT2 __attribute__((visibility("default")))
#endif
#ifndef FMI2_FUNCTION_PREFIX
#define FMI2_FUNCTION_PREFIX
#endif
#define NAME2(name) JOIN(FMI2_FUNCTION_PREFIX, fmi2##name)
#define FMI2(name) EXPORT2 fmi3Status NAME2(name)

typedef struct {
    void (*logger)(void *environment, const char *instance, fmi3Status status, const char *category,
                   const char *message, ...);
    void *(*allocate)(size_t count, size_t size);
    void (*release)(void *memory);
    void (*step_finished)(void *environment, fmi3Status status);
    void *environment;
} Callbacks;

typedef struct {
    int again, terminate, nominals, values, has_next;
    double next;
} EventInfo;

/* What the simulator gave: the environment of the instance. */
typedef struct {
    const Callbacks *callbacks;
    char name[100];
    double last; /* time that co-simulation has reached */
} Host;

static void log_to_host(void *environment, fmi3Status status, const char *category, const char *message)
{
    const Host *host = environment;
    const Callbacks *callbacks = host->callbacks;
    if (callbacks && callbacks->logger)
        callbacks->logger(callbacks->environment, host->name, status, category, "%s", message);
}

static Host *host_of(void *instance) { return ((Instance *)instance)->environment; }

EXPORT2 const char *NAME2(GetTypesPlatform)(void) { return "default"; }
EXPORT2 const char *NAME2(GetVersion)(void) { return "2.0"; }

EXPORT2 void *NAME2(Instantiate)(const char *name, int type, const char *token, const char *resources,
                                 const Callbacks *callbacks, int visible, int logging)
{
    (void)resources;
    (void)visible;
    Host *host = calloc(1, sizeof(Host));
    if (!host) return NULL;
    host->callbacks = callbacks;
    snprintf(host->name, sizeof host->name, "%s", name ? name : "");
    Instance *it = instantiate(token, logging != 0, host, log_to_host);
    if (it) it->co_simulation = type == 1;
    else free(host);
    return it;
}

EXPORT2 void NAME2(FreeInstance)(void *instance)
{
    if (instance) free(host_of(instance));
    free(instance);
}

FMI2(SetDebugLogging)(void *instance, int on, size_t count, const char *const categories[])
{
    return fmi3SetDebugLogging(instance, on != 0, count, categories);
}

FMI2(SetupExperiment)(void *instance, int has_tolerance, double tolerance, double start_time, int has_stop,
                      double stop_time)
{
    (void)has_tolerance;
    (void)tolerance;
    (void)has_stop;
    (void)stop_time;
    return fmi3SetTime(instance, start_time);
}

FMI2(EnterInitializationMode)(void *instance)
{
    return fmi3EnterInitializationMode(instance, false, 0.0, ((Instance *)instance)->now.x[0], false, 0.0);
}

FMI2(ExitInitializationMode)(void *instance) { return fmi3ExitInitializationMode(instance); }
FMI2(Terminate)(void *instance) { return fmi3Terminate(instance); }
FMI2(Reset)(void *instance) { return fmi3Reset(instance); }

FMI2(GetReal)(void *instance, const Reference references[], size_t count, double values[])
{
    return fmi3GetFloat64(instance, references, count, values, count);
}

FMI2(SetReal)(void *instance, const Reference references[], size_t count, const double values[])
{
    return fmi3SetFloat64(instance, references, count, values, count);
}

#define NO_VARIABLES2(name, type)                                                                          \
    FMI2(Get##name)(void *instance, const Reference references[], size_t count, type values[])            \
    {                                                                                                      \
        return count ? fail(instance, fmi3Error, "There are no variables of type " #name ".") : fmi3OK;    \
    }                                                                                                      \
    FMI2(Set##name)(void *instance, const Reference references[], size_t count, const type values[])      \
    {                                                                                                      \
        return count ? fail(instance, fmi3Error, "There are no variables of type " #name ".") : fmi3OK;    \
    }
NO_VARIABLES2(Integer, int)
NO_VARIABLES2(Boolean, int)
NO_VARIABLES2(String, char *)

FMI2(GetFMUstate)(void *instance, void **state) { return fmi3GetFMUState(instance, state); }
FMI2(SetFMUstate)(void *instance, void *state) { return fmi3SetFMUState(instance, state); }
FMI2(FreeFMUstate)(void *instance, void **state) { return fmi3FreeFMUState(instance, state); }

FMI2(SerializedFMUstateSize)(void *instance, void *state, size_t *size)
{
    return fmi3SerializedFMUStateSize(instance, state, size);
}

FMI2(SerializeFMUstate)(void *instance, void *state, char bytes[], size_t size)
{
    return fmi3SerializeFMUState(instance, state, (uint8_t *)bytes, size);
}

FMI2(DeSerializeFMUstate)(void *instance, const char bytes[], size_t size, void **state)
{
    return fmi3DeserializeFMUState(instance, (const uint8_t *)bytes, size, state);
}

FMI2(GetDirectionalDerivative)(void *instance, const Reference unknowns[], size_t rows, const Reference knowns[],
                               size_t columns, const double seed[], double found[])
{
    return fmi3GetDirectionalDerivative(instance, unknowns, rows, knowns, columns, seed, columns, found, rows);
}

/* --- Model exchange */

FMI2(EnterEventMode)(void *instance) { return fmi3EnterEventMode(instance); }
FMI2(EnterContinuousTimeMode)(void *instance) { return fmi3EnterContinuousTimeMode(instance); }

FMI2(NewDiscreteStates)(void *instance, EventInfo *info)
{
    bool again, terminate, nominals, values, has_next;
    const fmi3Status status =
        fmi3UpdateDiscreteStates(instance, &again, &terminate, &nominals, &values, &has_next, &info->next);
    info->again = again;
    info->terminate = terminate;
    info->nominals = nominals;
    info->values = values;
    info->has_next = has_next;
    return status;
}

FMI2(CompletedIntegratorStep)(void *instance, int no_return, int *event, int *terminate)
{
    bool has_event, terminates;
    const fmi3Status status = fmi3CompletedIntegratorStep(instance, no_return != 0, &has_event, &terminates);
    *event = has_event;
    *terminate = terminates;
    return status;
}

FMI2(SetTime)(void *instance, double time) { return fmi3SetTime(instance, time); }

FMI2(SetContinuousStates)(void *instance, const double states[], size_t count)
{
    return fmi3SetContinuousStates(instance, states, count);
}

FMI2(GetDerivatives)(void *instance, double derivatives[], size_t count)
{
    return fmi3GetContinuousStateDerivatives(instance, derivatives, count);
}

FMI2(GetEventIndicators)(void *instance, double indicators[], size_t count)
{
    return fmi3GetEventIndicators(instance, indicators, count);
}

FMI2(GetContinuousStates)(void *instance, double states[], size_t count)
{
    return fmi3GetContinuousStates(instance, states, count);
}

FMI2(GetNominalsOfContinuousStates)(void *instance, double nominals[], size_t count)
{
    return fmi3GetNominalsOfContinuousStates(instance, nominals, count);
}

/* --- Co-simulation */

FMI2(DoStep)(void *instance, double from, double length, int no_return)
{
    bool event, terminate, early;
    return fmi3DoStep(instance, from, length, no_return != 0, &event, &terminate, &early, &host_of(instance)->last);
}

FMI2(GetRealStatus)(void *instance, int kind, double *value)
{
    if (kind != 2) return fmi3Discard; /* that is the time it has reached */
    *value = host_of(instance)->last;
    return fmi3OK;
}

FMI2(CancelStep)(void *instance) { return fail(instance, fmi3Error, "Steps are not asynchronous."); }
FMI2(GetStatus)(void *instance, int kind, fmi3Status *value) { return fmi3Discard; }
FMI2(GetIntegerStatus)(void *instance, int kind, int *value) { return fmi3Discard; }
FMI2(GetStringStatus)(void *instance, int kind, const char **value) { return fmi3Discard; }

FMI2(GetBooleanStatus)(void *instance, int kind, int *value)
{
    if (kind != 3) return fmi3Discard;
    *value = false; /* it never asks to end */
    return fmi3OK;
}

FMI2(SetRealInputDerivatives)(void *instance, const Reference r[], size_t n, const int orders[], const double values[])
{
    return fail(instance, fmi3Error, "Inputs are held between communication points.");
}

FMI2(GetRealOutputDerivatives)(void *instance, const Reference r[], size_t n, const int orders[], double values[])
{
    return fail(instance, fmi3Error, "Outputs have no derivatives by time.");
}
