/*
 * The functions of FMI 3.0 around a model that ukjax has written as C. One array holds all values; a value reference is
 * an index into it: time, q, v, inputs (together the INPUTS first), parameters, from MODE on the mode of contacts (which
 * bear, which stick, and where they slide to), and from FIRST_RESULT on what the model computes of these: q', v', the other
 * outputs, and the MARGINS of contacts, which are positive as long as the mode holds. `fmu.h`, beside this file, has the
 * sizes and the calls.
 *
 * The declarations follow the headers of the FMI standard 3.0.2 (Modelica Association, 2-Clause BSD License).
 */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fmu.h"

#ifndef FMI3_FUNCTION_PREFIX
#define FMI3_FUNCTION_PREFIX
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define FMI(name) EXPORT fmi3Status JOIN(FMI3_FUNCTION_PREFIX, fmi3##name)
#define FMI_POINTER(name) EXPORT void *JOIN(FMI3_FUNCTION_PREFIX, fmi3##name)
#if !defined(EXPORT) && defined(_WIN32)
#define EXPORT __declspec(dllexport)
#elif !defined(EXPORT)
#define EXPORT __attribute__((visibility("default")))
#endif

typedef enum { fmi3OK, fmi3Warning, fmi3Discard, fmi3Error, fmi3Fatal } fmi3Status;
typedef enum { fmi3Independent, fmi3Constant, fmi3Fixed, fmi3Tunable, fmi3Discrete, fmi3Dependent } fmi3DependencyKind;
typedef enum { fmi3IntervalNotYetKnown, fmi3IntervalUnchanged, fmi3IntervalChanged } fmi3IntervalQualifier;
typedef void (*fmi3LogMessage)(void *environment, fmi3Status status, const char *category, const char *message);
typedef uint32_t Reference;

typedef enum { INSTANTIATED, INITIALIZATION, EVENT, CONTINUOUS, STEP, TERMINATED } Mode;

/* What an FMU state is: all that later results depend on. */
typedef struct {
    double x[VALUES];
    Mode mode;
    bool project; /* whether the next event moves the state onto the constraints */
} State;

typedef struct {
    State now;
    bool evaluated, differentiated; /* whether the results and the derivatives are those of the values */
    double jacobian[RESULTS * INPUTS];
    bool co_simulation, logging;
    bool early, events; /* whether steps of co-simulation may end early, and do so at events */
    void *environment;
    fmi3LogMessage log;
    void (*update)(void *environment, double time, bool set, bool get, bool finished, bool early, bool *wanted,
                   double *when);
} Instance;

static fmi3Status fail(Instance *it, fmi3Status status, const char *format, ...)
{
    if (it->log && it->logging) {
        char text[300];
        va_list given;
        va_start(given, format);
        vsnprintf(text, sizeof text, format, given);
        va_end(given);
        it->log(it->environment, status, status == fmi3Discard ? "logStatusDiscard" : "logStatusError", text);
    }
    return status;
}

static void changed(Instance *it) { it->evaluated = it->differentiated = false; }

static void evaluate(Instance *it)
{
    if (!it->evaluated) EVALUATE(it->now.x, it->now.x + FIRST_RESULT);
    it->evaluated = true;
}

static void differentiate(Instance *it)
{
    if (!it->differentiated) DIFFERENTIATE(it->now.x, it->jacobian);
    it->differentiated = true;
}

static bool is_finite(const double *x, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (x[i] - x[i] != 0.0) return false;
    return true;
}

/* Another state, and another mode of contacts. */
static fmi3Status put(Instance *it, const double *next)
{
    if (!is_finite(next, STATES + MODES))
        return fail(it, fmi3Discard, "No motion goes on from %g s.", it->now.x[0]);
    memcpy(it->now.x + STATE, next, STATES * sizeof(double));
    memcpy(it->now.x + MODE, next + STATES, MODES * sizeof(double));
    changed(it);
    return fmi3OK;
}

#ifdef PROJECT
/* Whether the state is off the constraints by more than the tolerance. */
static bool is_off(Instance *it)
{
    evaluate(it);
    return !(it->now.x[CONSTRAINT_ERROR] <= it->now.x[TOLERANCE]);
}

static fmi3Status project(Instance *it)
{
    double next[STATES + MODES];
    PROJECT(it->now.x, next);
    if (put(it, next) != fmi3OK || is_off(it))
        return fail(it, fmi3Error, "There is no state on the constraints near by: they are off by %g.",
                    it->now.x[CONSTRAINT_ERROR]);
    return fmi3OK;
}
#else
static bool is_off(Instance *it)
{
    (void)it;
    return false;
}

static fmi3Status project(Instance *it)
{
    (void)it;
    return fmi3OK;
}
#endif

#if MARGINS
/* Whether the mode of contacts no longer holds. */
static bool has_event(Instance *it)
{
    evaluate(it);
    for (int i = 0; i < MARGINS; ++i)
        if (!(it->now.x[MARGIN + i] > 0.0)) return true;
    return false;
}

/* Impacts at this instant, and the mode that follows. */
static fmi3Status settle(Instance *it)
{
    double next[STATES + MODES];
    SETTLE(it->now.x, next);
    return put(it, next) == fmi3OK ? fmi3OK : fmi3Error;
}

/* Where contacts begin. */
static fmi3Status begin(Instance *it)
{
    evaluate(it);
    for (int i = 0; i < GAPS; ++i)
        if (!(it->now.x[GAP + i] >= -it->now.x[TOLERANCE]))
            return fail(it, fmi3Error, "The start penetrates a contact: its gap is %g.", it->now.x[GAP + i]);
    return settle(it);
}
#else
static bool has_event(Instance *it)
{
    (void)it;
    return false;
}

static fmi3Status settle(Instance *it)
{
    (void)it;
    return fmi3OK;
}

static fmi3Status begin(Instance *it) { return settle(it); }
#endif

static void start(Instance *it)
{
    memset(&it->now, 0, sizeof it->now);
    memcpy(it->now.x, START, sizeof START);
    changed(it);
}

/* --- Life of an instance */

EXPORT const char *JOIN(FMI3_FUNCTION_PREFIX, fmi3GetVersion)(void) { return "3.0"; }

FMI(SetDebugLogging)(void *instance, bool on, size_t count, const char *const categories[])
{
    (void)count;
    (void)categories;
    ((Instance *)instance)->logging = on;
    return fmi3OK;
}

static void *instantiate(const char *token, bool logging, void *environment, fmi3LogMessage log)
{
    Instance *it = calloc(1, sizeof(Instance));
    if (!it) return NULL;
    it->logging = logging;
    it->environment = environment;
    it->log = log;
    if (!token || strcmp(token, TOKEN)) {
        it->logging = true;
        fail(it, fmi3Error, "The instantiation token is not that of this FMU: its model description is another.");
        free(it);
        return NULL;
    }
    start(it);
    return it;
}

FMI_POINTER(InstantiateModelExchange)(const char *name, const char *token, const char *resources, bool visible,
                                      bool logging, void *environment, fmi3LogMessage log)
{
    (void)name;
    (void)resources;
    (void)visible;
    return instantiate(token, logging, environment, log);
}

FMI_POINTER(InstantiateCoSimulation)(const char *name, const char *token, const char *resources, bool visible,
                                     bool logging, bool events, bool early, const Reference required[], size_t count,
                                     void *environment, fmi3LogMessage log,
                                     void (*update)(void *, double, bool, bool, bool, bool, bool *, double *))
{
    (void)name;
    (void)resources;
    (void)visible;
    (void)required;
    (void)count;
    Instance *it = instantiate(token, logging, environment, log);
    if (!it) return NULL;
    it->co_simulation = true;
    it->early = early;
    it->events = events && early; /* without an early return there is no time to handle one */
    it->update = update;
    return it;
}

FMI_POINTER(InstantiateScheduledExecution)(const char *name, const char *token, const char *resources, bool visible,
                                           bool logging, void *environment, fmi3LogMessage log, void (*update)(void),
                                           void (*lock)(void), void (*unlock)(void))
{
    (void)name;
    (void)token;
    (void)resources;
    (void)visible;
    (void)logging;
    (void)environment;
    (void)log;
    (void)update;
    (void)lock;
    (void)unlock;
    return NULL;
}

EXPORT void JOIN(FMI3_FUNCTION_PREFIX, fmi3FreeInstance)(void *instance) { free(instance); }

FMI(EnterInitializationMode)(void *instance, bool has_tolerance, double tolerance, double start_time, bool has_stop,
                             double stop_time)
{
    (void)has_tolerance;
    (void)tolerance;
    (void)has_stop;
    (void)stop_time;
    Instance *it = instance;
    it->now.x[0] = start_time;
    it->now.mode = INITIALIZATION;
    changed(it);
    return fmi3OK;
}

FMI(ExitInitializationMode)(void *instance)
{
    Instance *it = instance;
    it->now.mode = it->co_simulation && !it->events ? STEP : EVENT;
    const fmi3Status status = is_off(it) ? project(it) : fmi3OK;
    return status == fmi3OK ? begin(it) : status;
}

FMI(EnterEventMode)(void *instance)
{
    ((Instance *)instance)->now.mode = EVENT;
    return fmi3OK;
}

FMI(Terminate)(void *instance)
{
    ((Instance *)instance)->now.mode = TERMINATED;
    return fmi3OK;
}

FMI(Reset)(void *instance)
{
    start(instance);
    return fmi3OK;
}

/* --- Values */

FMI(GetFloat64)(void *instance, const Reference references[], size_t count, double values[], size_t size)
{
    Instance *it = instance;
    if (size != count) return fail(it, fmi3Error, "There are %zu values of %zu variables.", size, count);
    for (size_t i = 0; i < count; ++i) {
        if (references[i] >= VALUES) return fail(it, fmi3Error, "There is no variable %u.", (unsigned)references[i]);
        if (references[i] >= FIRST_RESULT) evaluate(it);
        values[i] = it->now.x[references[i]];
    }
    return fmi3OK;
}

FMI(SetFloat64)(void *instance, const Reference references[], size_t count, const double values[], size_t size)
{
    Instance *it = instance;
    if (size != count) return fail(it, fmi3Error, "There are %zu values of %zu variables.", size, count);
    for (size_t i = 0; i < count; ++i) {
        const Reference k = references[i];
        if (k == 0 || k >= MODE) return fail(it, fmi3Error, "Variable %u cannot be set.", (unsigned)k);
        if (k < STATE + STATES && it->now.mode > INITIALIZATION)
            return fail(it, fmi3Error, "Variable %u is a state: it can be set before the run only.", (unsigned)k);
        it->now.x[k] = values[i];
    }
    changed(it);
    return fmi3OK;
}

/* Of other types there are no variables. */
#define NO_VARIABLES(name, type)                                                                              \
    FMI(Get##name)(void *instance, const Reference references[], size_t count, type values[], size_t size)    \
    {                                                                                                         \
        (void)references;                                                                                     \
        (void)values;                                                                                         \
        (void)size;                                                                                           \
        return count ? fail(instance, fmi3Error, "There are no variables of type " #name ".") : fmi3OK;       \
    }                                                                                                         \
    FMI(Set##name)(void *instance, const Reference references[], size_t count, const type values[], size_t size) \
    {                                                                                                         \
        (void)references;                                                                                     \
        (void)values;                                                                                         \
        (void)size;                                                                                           \
        return count ? fail(instance, fmi3Error, "There are no variables of type " #name ".") : fmi3OK;       \
    }
NO_VARIABLES(Float32, float)
NO_VARIABLES(Int8, int8_t)
NO_VARIABLES(UInt8, uint8_t)
NO_VARIABLES(Int16, int16_t)
NO_VARIABLES(UInt16, uint16_t)
NO_VARIABLES(Int32, int32_t)
NO_VARIABLES(UInt32, uint32_t)
NO_VARIABLES(Int64, int64_t)
NO_VARIABLES(UInt64, uint64_t)
NO_VARIABLES(Boolean, bool)
NO_VARIABLES(String, char *)

/* What this FMU has no use for: as its model description says, nothing calls it. */
#define NOTHING(name, ...)                                                                                    \
    FMI(name)(void *instance, __VA_ARGS__)                                                                    \
    {                                                                                                         \
        return fail(instance, fmi3Error, "fmi3" #name " is not supported.");                                  \
    }
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
NOTHING(GetBinary, const Reference r[], size_t n, size_t sizes[], const uint8_t *values[], size_t size)
NOTHING(SetBinary, const Reference r[], size_t n, const size_t sizes[], const uint8_t *const values[], size_t size)
NOTHING(GetClock, const Reference r[], size_t n, bool values[])
NOTHING(SetClock, const Reference r[], size_t n, const bool values[])
NOTHING(GetNumberOfVariableDependencies, Reference r, size_t *count)
NOTHING(GetVariableDependencies, Reference r, size_t elements[], Reference of[], size_t of_elements[],
        fmi3DependencyKind kinds[], size_t count)
NOTHING(GetIntervalDecimal, const Reference r[], size_t n, double intervals[], fmi3IntervalQualifier qualifiers[])
NOTHING(GetIntervalFraction, const Reference r[], size_t n, uint64_t counters[], uint64_t resolutions[],
        fmi3IntervalQualifier qualifiers[])
NOTHING(GetShiftDecimal, const Reference r[], size_t n, double shifts[])
NOTHING(GetShiftFraction, const Reference r[], size_t n, uint64_t counters[], uint64_t resolutions[])
NOTHING(SetIntervalDecimal, const Reference r[], size_t n, const double intervals[])
NOTHING(SetIntervalFraction, const Reference r[], size_t n, const uint64_t counters[], const uint64_t resolutions[])
NOTHING(SetShiftDecimal, const Reference r[], size_t n, const double shifts[])
NOTHING(SetShiftFraction, const Reference r[], size_t n, const uint64_t counters[], const uint64_t resolutions[])
NOTHING(GetOutputDerivatives, const Reference r[], size_t n, const int32_t orders[], double values[], size_t size)
NOTHING(ActivateModelPartition, Reference clock, double time)

FMI(EnterConfigurationMode)(void *instance)
{
    return fail(instance, fmi3Error, "There are no structural parameters.");
}

FMI(ExitConfigurationMode)(void *instance)
{
    return fail(instance, fmi3Error, "There are no structural parameters.");
}

FMI(EvaluateDiscreteStates)(void *instance) { return fail(instance, fmi3Error, "There are no discrete states."); }

/* --- States of the FMU, kept and written down */

FMI(GetFMUState)(void *instance, void **state)
{
    if (!*state) *state = malloc(sizeof(State));
    if (!*state) return fail(instance, fmi3Error, "There is no memory left.");
    memcpy(*state, &((Instance *)instance)->now, sizeof(State));
    return fmi3OK;
}

FMI(SetFMUState)(void *instance, void *state)
{
    memcpy(&((Instance *)instance)->now, state, sizeof(State));
    changed(instance);
    return fmi3OK;
}

FMI(FreeFMUState)(void *instance, void **state)
{
    (void)instance;
    if (state) {
        free(*state);
        *state = NULL;
    }
    return fmi3OK;
}

FMI(SerializedFMUStateSize)(void *instance, void *state, size_t *size)
{
    (void)instance;
    (void)state;
    *size = sizeof(State);
    return fmi3OK;
}

FMI(SerializeFMUState)(void *instance, void *state, uint8_t bytes[], size_t size)
{
    if (size != sizeof(State)) return fail(instance, fmi3Error, "A state has %zu bytes.", sizeof(State));
    memcpy(bytes, state, size);
    return fmi3OK;
}

FMI(DeserializeFMUState)(void *instance, const uint8_t bytes[], size_t size, void **state)
{
    if (size != sizeof(State)) return fail(instance, fmi3Error, "A state has %zu bytes.", sizeof(State));
    if (!*state) *state = malloc(sizeof(State));
    if (!*state) return fail(instance, fmi3Error, "There is no memory left.");
    memcpy(*state, bytes, size);
    return fmi3OK;
}

/* --- Derivatives of what the model computes, by time, state and inputs */

static double derivative(const Instance *it, Reference unknown, Reference known)
{
    if (unknown < FIRST_RESULT) return unknown == known;
    return it->jacobian[(unknown - FIRST_RESULT) * INPUTS + known];
}

static fmi3Status check_derivatives(Instance *it, const Reference unknowns[], size_t rows, const Reference knowns[],
                                    size_t columns)
{
    for (size_t i = 0; i < rows; ++i)
        if (unknowns[i] >= VALUES) return fail(it, fmi3Error, "There is no variable %u.", (unsigned)unknowns[i]);
    for (size_t j = 0; j < columns; ++j)
        if (knowns[j] >= INPUTS)
            return fail(it, fmi3Error, "Derivatives are by time, states and inputs, not by variable %u.",
                        (unsigned)knowns[j]);
    differentiate(it);
    return fmi3OK;
}

FMI(GetDirectionalDerivative)(void *instance, const Reference unknowns[], size_t rows, const Reference knowns[],
                              size_t columns, const double seed[], size_t seeds, double found[], size_t size)
{
    if (seeds != columns || size != rows)
        return fail(instance, fmi3Error, "There are %zu seeds and %zu results.", seeds, size);
    const fmi3Status status = check_derivatives(instance, unknowns, rows, knowns, columns);
    if (status != fmi3OK) return status;
    for (size_t i = 0; i < rows; ++i) {
        found[i] = 0.0;
        for (size_t j = 0; j < columns; ++j) found[i] += derivative(instance, unknowns[i], knowns[j]) * seed[j];
    }
    return fmi3OK;
}

FMI(GetAdjointDerivative)(void *instance, const Reference unknowns[], size_t rows, const Reference knowns[],
                          size_t columns, const double seed[], size_t seeds, double found[], size_t size)
{
    if (seeds != rows || size != columns)
        return fail(instance, fmi3Error, "There are %zu seeds and %zu results.", seeds, size);
    const fmi3Status status = check_derivatives(instance, unknowns, rows, knowns, columns);
    if (status != fmi3OK) return status;
    for (size_t j = 0; j < columns; ++j) {
        found[j] = 0.0;
        for (size_t i = 0; i < rows; ++i) found[j] += derivative(instance, unknowns[i], knowns[j]) * seed[i];
    }
    return fmi3OK;
}

/* --- Model exchange */

FMI(UpdateDiscreteStates)(void *instance, bool *again, bool *terminate, bool *nominals, bool *values, bool *has_next,
                          double *next)
{
    Instance *it = instance;
    *again = *terminate = *nominals = *has_next = false;
    *next = 0.0;
    const bool at_event = has_event(it), off = it->now.project;
    *values = at_event || off;
    it->now.project = false;
    return at_event ? settle(it) : off ? project(it) : fmi3OK;
}

FMI(EnterContinuousTimeMode)(void *instance)
{
    ((Instance *)instance)->now.mode = CONTINUOUS;
    return fmi3OK;
}

FMI(CompletedIntegratorStep)(void *instance, bool no_return, bool *event, bool *terminate)
{
    (void)no_return;
    Instance *it = instance;
    it->now.project = is_off(it);
    *event = it->now.project || has_event(it);
    *terminate = false;
    return fmi3OK;
}

FMI(SetTime)(void *instance, double time)
{
    ((Instance *)instance)->now.x[0] = time;
    changed(instance);
    return fmi3OK;
}

FMI(SetContinuousStates)(void *instance, const double states[], size_t count)
{
    if (count != STATES) return fail(instance, fmi3Error, "There are %d states.", STATES);
    memcpy(((Instance *)instance)->now.x + STATE, states, STATES * sizeof(double));
    changed(instance);
    return fmi3OK;
}

FMI(GetContinuousStates)(void *instance, double states[], size_t count)
{
    if (count != STATES) return fail(instance, fmi3Error, "There are %d states.", STATES);
    memcpy(states, ((Instance *)instance)->now.x + STATE, STATES * sizeof(double));
    return fmi3OK;
}

FMI(GetContinuousStateDerivatives)(void *instance, double derivatives[], size_t count)
{
    Instance *it = instance;
    if (count != STATES) return fail(it, fmi3Error, "There are %d states.", STATES);
    evaluate(it);
    memcpy(derivatives, it->now.x + FIRST_RESULT, STATES * sizeof(double));
    return is_finite(derivatives, STATES) ? fmi3OK : fail(it, fmi3Discard, "The derivatives are not finite.");
}

FMI(GetNominalsOfContinuousStates)(void *instance, double nominals[], size_t count)
{
    if (count != STATES) return fail(instance, fmi3Error, "There are %d states.", STATES);
    for (size_t i = 0; i < count; ++i) nominals[i] = 1.0;
    return fmi3OK;
}

FMI(GetEventIndicators)(void *instance, double indicators[], size_t count)
{
    Instance *it = instance;
    if (count != MARGINS) return fail(it, fmi3Error, "There are %d event indicators.", MARGINS);
    evaluate(it);
    memcpy(indicators, it->now.x + MARGIN, MARGINS * sizeof(double));
    return fmi3OK;
}

FMI(GetNumberOfEventIndicators)(void *instance, size_t *count)
{
    (void)instance;
    *count = MARGINS;
    return fmi3OK;
}

FMI(GetNumberOfContinuousStates)(void *instance, size_t *count)
{
    (void)instance;
    *count = STATES;
    return fmi3OK;
}

/* --- Co-simulation */

FMI(EnterStepMode)(void *instance)
{
    ((Instance *)instance)->now.mode = STEP;
    return fmi3OK;
}

/* One step from a state on. */
static fmi3Status step_on(Instance *it, const State *from, double length)
{
    double next[STATES + MODES];
    it->now = *from;
    STEP_ON(it->now.x, length, next);
    const fmi3Status status = put(it, next);
    if (status == fmi3OK) it->now.x[0] += length;
    return status;
}

#if MARGINS
/* The least of the margins that were positive where a step began; where a contact has bounced, but for rounding. */
static double least_margin(Instance *it, const State *from)
{
    double least = HUGE_VAL;
    evaluate(it);
    for (int i = 0; i < MARGINS; ++i)
        if (from->x[MARGIN + i] > -1e-12) least = fmin(least, it->now.x[MARGIN + i]);
    return least;
}

/* The step that ends just after a margin runs out, by false position and, every third time, halving. */
static fmi3Status step_to_event(Instance *it, const State *from, double length)
{
    double lower = 0.0, upper = length, below, above = least_margin(it, from);
    State now = it->now;
    it->now = *from;
    below = least_margin(it, from);
    for (int i = 0; i < 200 && upper - lower > 4e-16 * (1.0 + fabs(from->x[0])); ++i) {
        const double secant = lower + (upper - lower) * below / (below - above), middle = 0.5 * (lower + upper);
        const double at = i % 3 < 2 && secant > lower && secant < upper ? secant : middle;
        if (!(at > lower && at < upper)) break;
        const fmi3Status status = step_on(it, from, at);
        if (status != fmi3OK) return status;
        const double margin = least_margin(it, from);
        if (margin > 0.0) {
            lower = at;
            below = margin;
        } else {
            upper = at;
            above = margin;
            now = it->now;
        }
    }
    it->now = now;
    changed(it);
    return fmi3OK;
}
#else
static double least_margin(Instance *it, const State *from)
{
    (void)it;
    (void)from;
    return HUGE_VAL;
}

static fmi3Status step_to_event(Instance *it, const State *from, double length)
{
    (void)it;
    (void)from;
    (void)length;
    return fmi3OK;
}
#endif

/* A step, or its part up to the first event. */
static fmi3Status advance(Instance *it, double length)
{
    evaluate(it); /* the margins that are known where it begins */
    const State from = it->now;
    fmi3Status status = step_on(it, &from, length);
    if (status == fmi3OK && !(least_margin(it, &from) > 0.0)) status = step_to_event(it, &from, length);
    if (status == fmi3OK) return fmi3OK;
    it->now = from;
    changed(it);
    return fail(it, fmi3Discard, "The step of %g s from %g s on fails; take a smaller step_size.", length, from.x[0]);
}

enum { MOST_EVENTS = 10000 }; /* in one communication step */

FMI(DoStep)(void *instance, double from, double length, bool no_return, bool *event, bool *terminate, bool *early,
            double *last)
{
    (void)no_return;
    Instance *it = instance;
    double *x = it->now.x;
    *event = *terminate = *early = false;
    *last = x[0] = from;
    if (!(length > 0.0)) return fail(it, fmi3Error, "A step of %g s is none.", length);
    if (!(x[STEP_SIZE] > 0.0)) return fail(it, fmi3Error, "The step size is %g s, not positive.", x[STEP_SIZE]);
    changed(it);
    fmi3Status status = is_off(it) ? project(it) : fmi3OK; /* as after a change of parameters */
    if (status == fmi3OK && has_event(it)) status = settle(it); /* as after one of inputs */
    /* Steps of the same size, no longer than wished but for rounding. */
    const double count = fmax(1.0, ceil(length / x[STEP_SIZE] * (1.0 - 1e-9))), dt = length / count;
    int events = 0;
    for (double k = 1.0; k <= count && status == fmi3OK; k += 1.0) {
        const double end = k < count ? from + k * dt : from + length, rounding = 4e-16 * (1.0 + fabs(end));
        while (status == fmi3OK && end - x[0] > rounding) {
            status = advance(it, end - x[0]);
            *last = x[0];
            if (status != fmi3OK || !has_event(it)) continue;
            if (it->events) {
                *event = true;
                *early = from + length - x[0] > rounding;
                return fmi3OK;
            }
            status = ++events > MOST_EVENTS ? fail(it, fmi3Error, "There are more than %d events.", MOST_EVENTS) : settle(it);
        }
        if (status == fmi3OK) *last = x[0] = end;
        changed(it);
        if (it->update && status == fmi3OK) {
            bool wanted = false;
            double when = end;
            it->update(it->environment, end, false, true, true, it->early && k < count, &wanted, &when);
            if (wanted && it->early && k < count) {
                *early = true;
                return fmi3OK;
            }
        }
    }
    return status;
}
